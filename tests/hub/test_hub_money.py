"""Real broker, hub and sessions: what cannot be paid is refused alike everywhere; groups pay as chosen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest
from allotment_hub.host.probes import Answer, request
from allotment_testing.hub_browser import xsrf_of
from allotment_testing.installation import Installation, wait_until

CATALOG = Path(__file__).resolve().parents[2] / "deploy" / "config" / "catalog.yaml"
PRICES = """
prices:
  groups: {students: "0.5"}
"""
SITE = """
limits:
  - {flavors: [gpu-20gb], sessions: 0}
  - {flavors: [cpu], hours: 6}
"""
TEN: dict[str, str] = {"environment": "minimal", "flavor": "gpu-10gb"}
CPU: dict[str, str] = {"environment": "minimal", "flavor": "cpu"}
LACKS = "Your budget lacks 0.056667 credits: 0.01 are left, and 10 minutes of 10 GB GPU need 0.066667."


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    """demo has next to nothing; ann and ben are in physics and art, which pay; ben pays half."""
    made = Installation(gpus="sim:1xA100-80GB:mig")
    try:
        made.paths.runtime.parent.mkdir(parents=True)
        made.paths.catalog.parent.mkdir()
        made.paths.catalog.write_text(CATALOG.read_text(encoding="utf-8") + PRICES, encoding="utf-8")
        made.paths.site.write_text(SITE, encoding="utf-8")
        made.up("--trust-users")
        for name in ("ann", "ben"):
            assert made.hub("POST", f"/users/{name}").status == 201
        for group, members in (("physics", ["ann", "ben"]), ("art", ["ann", "ben"]), ("students", ["ben"])):
            assert made.hub("POST", f"/groups/{group}").status == 201
            assert made.hub("POST", f"/groups/{group}/users", {"users": members}).status == 200
        budget(made, "user", "demo", "0.01")
        budget(made, "group", "physics", "5")
        budget(made, "group", "art", "0.02")
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def demo(installation: Installation) -> Iterator[httpx.Client]:
    """demo's browser."""
    with httpx.Client(
        base_url=installation.connection.hub_url, follow_redirects=True, timeout=60, trust_env=False
    ) as client:
        page = client.get("/hub/login")
        words = {"username": installation.connection.user, "password": installation.connection.user_password}
        answer = client.post("/hub/login?next=/hub/home", data={**words, "_xsrf": xsrf_of(page.text)})
        assert answer.url.path == "/hub/home", answer.text
        yield client


def budget(installation: Installation, scope: str, name: str, amount: str) -> dict[str, Any]:
    """A hard one of this month."""
    body = {"scope": scope, "name": name, "unit": "money", "period": "month", "amount": amount, "hard": True}
    return operate(installation, "POST", "budgets", {**body, "reason": "for a test"})


def operate(installation: Installation, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    url = f"{installation.connection.broker_url}api/v1/{path}"
    answer = request(url, method=method, token=installation.connection.admin_token, body=body, timeout_s=20)
    assert answer.status in (200, 201), (answer.status, answer.body)
    found: dict[str, Any] = answer.json()
    return found


def start(installation: Installation, user: str, options: dict[str, str], server: str = "") -> Answer:
    end = f"servers/{server}" if server else "server"
    return installation.hub("POST", f"/users/{user}/{end}", {"user_options": options})


def newest(installation: Installation, user: str, server: str = "") -> dict[str, Any] | None:
    found = installation.broker(f"leases?user={user}&server={server}&limit=1").json()
    return found[0] if found else None


def active(installation: Installation, user: str) -> bool:
    return (newest(installation, user) or {}).get("state") == "active"


def test_what_cannot_be_paid_is_refused_by_form_api_and_named_server_alike(
    installation: Installation, demo: httpx.Client
) -> None:
    by_api = start(installation, "demo", TEN)
    named = start(installation, "demo", TEN, server="second")
    assert (by_api.status, named.status) == (402, 402)
    assert by_api.json()["message"].startswith(LACKS)
    assert named.json()["message"] == by_api.json()["message"]
    for path in ("/hub/spawn", "/hub/spawn/demo/third"):
        form = demo.get(path)
        card = re.search(r'data-flavor="gpu-10gb">.*?</label>', form.text, re.DOTALL)
        assert card is not None
        assert LACKS in unescape(card.group()), "said before"
        assert "disabled" in card.group()
        answer = demo.post(path, data={**TEN, "_xsrf": xsrf_of(form.text)})
        assert answer.status_code in (200, 402), "the hub answers with its form again, or with the refusal"
        assert LACKS in unescape(answer.text)
        assert "SpawnException" not in answer.text
    leases = installation.broker("leases?user=demo&limit=50").json()
    assert {one["end_reason"] for one in leases} <= {"refused"}, "nothing was started, nothing is held"


def test_what_can_be_paid_starts_and_shows_what_it_costs(
    installation: Installation, demo: httpx.Client
) -> None:
    form = demo.get("/hub/spawn").text
    assert "0.01 of 0.01 credits left" in form
    assert "What is left pays for 12 min. At most 6 h at a time." in form
    demo.post("/hub/spawn", data={**CPU, "_xsrf": xsrf_of(form)})
    wait_until(partial(active, installation, "demo"), what="demo works", limit_s=90)

    wait_until(lambda: demo.get("/user/demo/tree").url.path == "/user/demo/tree", what="the hub leads there")

    def session() -> dict[str, Any]:
        found: dict[str, Any] = demo.get("/user/demo/allotment/session").json()
        return found

    wait_until(lambda: session()["cost"] is not None, what="its cost is told")
    told = session()
    assert (told["currency"], told["charged_to"]) == ("credits", None)
    assert (told["budget"]["title"], told["budget"]["hard"]) == ("your budget", True)
    assert Decimal(told["budget"]["left"]) <= Decimal("0.01")
    lease = newest(installation, "demo")
    assert lease is not None
    assert Decimal(0) < Decimal(lease["cost"]) < Decimal("0.01")
    assert "Cost so far" in demo.get("/services/allotment/").text
    assert installation.hub("DELETE", "/users/demo/server").status in (202, 204)
    wait_until(lambda: (newest(installation, "demo") or {})["state"] == "ended", what="it ends")


def test_the_group_that_pays_is_chosen_or_the_first_that_can(installation: Installation) -> None:
    assert start(installation, "ann", {**TEN, "charge_to": "physics"}).status in (201, 202)
    assert start(installation, "ben", TEN).status in (201, 202)
    for user in ("ann", "ben"):
        wait_until(partial(active, installation, user), what=f"{user} works", limit_s=90)
    ann, ben = newest(installation, "ann"), newest(installation, "ben")
    assert ann is not None
    assert ben is not None
    assert (ann["charged_to"], Decimal(ann["price_per_hour"])) == ("physics", Decimal("0.4"))
    assert (ben["charged_to"], Decimal(ben["price_per_hour"])) == ("physics", Decimal("0.2")), (
        "art comes first by name, but cannot pay"
    )


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        ({**TEN, "charge_to": "students"}, 403, "You cannot charge students"),
        ({**TEN, "charge_to": "nobodys"}, 403, "You cannot charge nobodys"),
        ({**TEN, "charge_to": "art"}, 402, "The budget of art lacks"),
        ({**TEN, "flavor": "gpu-20gb", "charge_to": "physics"}, 429, "You may have no session"),
        ({**TEN, "charge_to": ["art", "physics"]}, 422, "cannot be the name of a group"),
    ],
)
def test_what_no_group_may_pay_is_refused_with_the_reason(
    installation: Installation, options: dict[str, Any], status: int, said: str
) -> None:
    refused = start(installation, "ben", options, server="other")
    assert (refused.status, said in refused.json()["message"]) == (status, True), refused.body


def test_the_choice_is_remembered_and_a_refused_one_is_not(installation: Installation) -> None:
    assert start(installation, "ann", {**CPU, "charge_to": "art"}, server="again").status in (201, 202)
    found = partial(newest, installation, "ann", "again")
    wait_until(lambda: (found() or {}).get("state") == "active", what="it works", limit_s=90)
    assert installation.hub("DELETE", "/users/ann/servers/again").status in (202, 204)
    wait_until(lambda: (found() or {})["state"] == "ended", what="it ends")
    refused = start(installation, "ann", {**CPU, "charge_to": "nobodys"}, server="again")
    assert refused.status == 403
    assert installation.hub("POST", "/users/ann/servers/again").status in (201, 202)
    wait_until(lambda: (found() or {})["state"] == "active", what="it works again", limit_s=90)
    assert (found() or {})["charged_to"] == "art"
