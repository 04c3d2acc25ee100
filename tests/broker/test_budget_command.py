"""`allot budget` and the routes behind it, against a real broker: who may see and change what."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from allotment.cli import build_app
from allotment_testing.broker_api import BrokerApi, broker_api
from allotment_testing.fake_hub_api import ACCESS
from typer.testing import CliRunner, Result

PHYSICS = {
    "scope": "group",
    "name": "physics",
    "unit": "money",
    "period": "month",
    "amount": "100",
    "hard": True,
}


class Allot:
    """Runs `allot` as one of the people, while the broker goes on."""

    def __init__(self, api: BrokerApi, url: str) -> None:
        self.api = api
        self.url = url
        self.tokens = {name: api.hub.add_token(name, ACCESS) for name in ("ann", "ben", "paula", "olga")}

    async def __call__(self, user: str, *arguments: str) -> Result:
        env = {"ALLOTMENT_URL": self.url, "ALLOTMENT_TOKEN": self.tokens[user], "COLUMNS": "200"}
        return await asyncio.to_thread(CliRunner().invoke, build_app(), ["budget", *arguments], env=env)

    async def listed(self, user: str) -> list[dict[str, Any]]:
        found = await self(user, "list", "--json")
        assert found.exit_code == 0, found.output
        budgets: list[dict[str, Any]] = json.loads(found.stdout)
        return budgets

    async def send(
        self, user: str, method: str, path: str, body: object = None, key: str = ""
    ) -> httpx.Response:
        headers = {"Idempotency-Key": key} if key else {}
        async with self.api.client(self.tokens[user]) as client:
            return await client.request(method, path, json=body, headers=headers)


@pytest.fixture
async def allot(tmp_path: Path) -> AsyncIterator[Allot]:
    """ann and paula are in physics, ben is in nothing; paula owns what olga, the operator, gives her."""
    async with broker_api(tmp_path) as api, api.served() as url:
        api.hub.add_user("ann", groups=("physics",))
        api.hub.add_user("paula", groups=())
        api.hub.add_user("ben")
        api.hub.add_user("olga", groups=("allotment-operators",))
        yield Allot(api, url)


async def test_a_budget_from_its_making_to_its_end(allot: Allot) -> None:
    done = await allot(
        "olga",
        "set",
        "group:physics",
        "100",
        "--owner",
        "paula",
        "--note",
        "Lab course",
        "--because",
        "Asked for.",
    )
    assert done.exit_code == 0, done.output
    assert "made" in done.output
    [made] = await allot.listed("olga")
    assert {name: made[name] for name in PHYSICS} == PHYSICS
    assert (made["owner"], made["used"], made["left"]) == ("paula", "0", "100")
    assert (
        "changed" in (await allot("olga", "set", "group:physics", "80", "--owner", "paula", "--soft")).output
    )
    added = await allot("olga", "add", "group:physics", "5.5", "--because", "A guest.")
    assert "85.50 are left of it." in added.output
    taken = await allot("olga", "add", made["id"], "0.5", "--take", "--because", "Too much.")
    assert "85.00 are left of it." in taken.output
    shown = json.loads((await allot("olga", "show", made["id"], "--json")).stdout)
    assert [(one["kind"], one["amount"], one["reason"], one["made_by"]) for one in shown["history"]] == [
        ("change", "-0.5", "Too much.", "olga"),
        ("change", "5.5", "A guest.", "olga"),
        ("set", "80", "soft; note: none", "olga"),
        ("set", "100", "Asked for.", "olga"),
    ]
    table = (await allot("olga", "show", "group:physics")).output
    assert "A guest." in table
    assert "85.00" in table
    assert (await allot("olga", "close", "group:physics", "--because", "Over.")).exit_code == 0
    await _closed(allot, made["id"])


async def _closed(allot: Allot, budget: str) -> None:
    """It is seen as it was, and a new one may be made."""
    assert await allot.listed("olga") == []
    closed = json.loads((await allot("olga", "show", budget, "--json")).stdout)
    assert closed["closed_at"] is not None
    assert (closed["left"], closed["history"][0]["reason"]) == ("85.0", "Over.")
    again = await allot("olga", "close", budget, "--because", "Over.")
    assert again.exit_code == 0, "idempotent"
    assert (await allot("olga", "set", "group:physics", "1")).exit_code == 0, "a new one may be made"


async def test_who_sees_what(allot: Allot) -> None:
    ids = {}
    for whose, owner in (
        ("group:physics", "paula"),
        ("user:ben", ""),
        ("everybody", ""),
        ("group:other", ""),
    ):
        more = ["--owner", owner] if owner else []
        assert (await allot("olga", "set", whose, "10", *more)).exit_code == 0
    for one in await allot.listed("olga"):
        ids[one["name"]] = one["id"]
    assert sorted(one["name"] for one in await allot.listed("ann")) == ["*", "physics"]
    assert [one["name"] for one in await allot.listed("ben")] == ["ben"], "the own one instead of everybody's"
    assert sorted(one["name"] for one in await allot.listed("paula")) == ["*", "physics"]
    [seen] = [one for one in await allot.listed("ann") if one["name"] == "physics"]
    assert seen["owner"] == "another person"
    for user, name, code in (
        ("ann", "ben", 404),
        ("ann", "other", 404),
        ("ben", "physics", 404),
        ("paula", "physics", 200),
    ):
        answer = await allot.send(user, "GET", f"budgets/{ids[name]}")
        assert answer.status_code == code, (user, name)
    history = (await allot.send("paula", "GET", f"budgets/{ids['physics']}")).json()["history"]
    assert {one["made_by"] for one in history} == {"another person"}
    assert (await allot.send("ann", "GET", f"budgets/{ids['physics']}")).json()["history"] == []
    own = (await allot.send("ben", "GET", f"budgets/{ids['ben']}")).json()["history"]
    assert [one["kind"] for one in own] == ["set"]
    await _refused(allot, ids)


async def _refused(allot: Allot, ids: dict[str, str]) -> None:
    """Only operators change budgets, and only the owner transfers."""
    for user in ("ann", "paula"):
        for method, path, body in (
            ("PUT", f"budgets/{ids['physics']}", {"amount": "1000", "hard": False}),
            ("POST", f"budgets/{ids['physics']}/changes", {"amount": "1000", "reason": "I want it."}),
            ("DELETE", f"budgets/{ids['physics']}?reason=x", None),
            ("POST", "budgets", PHYSICS | {"name": "mine"}),
        ):
            assert (await allot.send(user, method, path, body)).status_code == 403
    refused = await allot("ann", "transfer", ids["physics"], ids["*"], "1", "--because", "For me.")
    assert refused.exit_code == 1
    assert "named owner" in refused.stderr


async def test_an_owner_transfers_what_is_left(allot: Allot) -> None:
    for whose, amount, owner in (
        ("group:physics", "10", "paula"),
        ("group:lab", "1", "paula"),
        ("group:x", "1", "ann"),
    ):
        await allot("olga", "set", whose, amount, "--owner", owner)
    done = await allot(
        "paula", "transfer", "group:physics", "group:lab", "9.25", "--because", "The lab needs it."
    )
    assert "0.75 are left of it." in done.output
    left = {one["name"]: one["left"] for one in await allot.listed("olga")}
    assert left == {"physics": "0.75", "lab": "10.25", "x": "1"}
    ids = {one["name"]: one["id"] for one in await allot.listed("olga")}
    too_much = await allot("paula", "transfer", "group:physics", "group:lab", "0.76", "--because", "More.")
    assert too_much.exit_code == 1
    assert "Only 0.75 credits are left" in too_much.stderr
    body = {"to": ids["lab"], "amount": "0.5", "reason": "Once."}
    for _ in range(3):
        answer = await allot.send("paula", "POST", f"budgets/{ids['physics']}/transfers", body, key="k1")
        assert (answer.status_code, answer.json()["left"]) == (201, "0.25")
    other = await allot.send(
        "paula", "POST", f"budgets/{ids['physics']}/transfers", body | {"amount": "0.1"}, key="k1"
    )
    assert other.json()["code"] == "bad_options"
    [into, *_] = (await allot.send("paula", "GET", f"budgets/{ids['lab']}")).json()["history"]
    assert (into["kind"], into["amount"], into["other"], into["made_by"]) == (
        "transfer",
        "0.5",
        ids["physics"],
        "paula",
    )
    stolen = await allot.send("paula", "POST", f"budgets/{ids['x']}/transfers", body)
    assert stolen.status_code == 404, "one that she does not see"


async def test_transfers_at_once_take_no_more_than_there_is(allot: Allot) -> None:
    for name in ("physics", "lab"):
        await allot("olga", "set", f"group:{name}", "10")
    ids = {one["name"]: one["id"] for one in await allot.listed("olga")}
    body = {"to": ids["lab"], "amount": "3", "reason": "Race."}
    path = f"budgets/{ids['physics']}/transfers"
    answers = await asyncio.gather(*(allot.send("olga", "POST", path, body) for _ in range(12)))
    assert sorted(one.status_code for one in answers) == [201] * 3 + [409] * 9
    left = {one["name"]: Decimal(one["left"]) for one in await allot.listed("olga")}
    assert left == {"physics": Decimal(1), "lab": Decimal(19)}
    back = await allot.send(
        "olga", "POST", f"budgets/{ids['lab']}/changes", {"amount": "-19.000001", "reason": "x"}
    )
    assert back.json()["code"] == "wrong_state"


async def test_what_does_not_fit_is_refused_in_a_sentence(allot: Allot) -> None:
    await allot("olga", "set", "group:physics", "10")
    await allot("olga", "set", "group:physics", "10", "--unit", "gpu-hours")
    await allot("olga", "set", "everybody", "10")
    for arguments, code, said in (
        (("set", "physics", "1"), 2, "is nobody's budget"),
        (("set", "group:physics", "much"), 2, "is no amount"),
        (("set", "group:physics", "-1"), 2, ""),
        (("set", "group:physics", "1", "--period", "term"), 1, "A term begins on a day"),
        (("set", "group:y", "1", "--period", "term", "--from", "2026-10-02", "--to", "2026-10-01"), 1, "A"),
        (("set", "group:y", "1", "--to", "2026-10-01"), 1, "no such days"),
        (("set", "group:y", "1", "--period", "total", "--to", "2026-10-01"), 1, "no end"),
        (("show", "group:physics"), 2, "several"),
        (("show", "group:chemistry"), 2, "no budget of group:chemistry"),
        (("show", "0123"), 1, "no such open budget"),
        (("add", "xyz", "1", "--because", "x"), 2, "is no budget"),
        (("transfer", "everybody", "everybody", "1", "--because", "x"), 1, "two budgets"),
    ):  # fmt: skip
        done = await allot("olga", *arguments)
        assert (done.exit_code, said in done.stderr) == (code, True), (arguments, done.output)
        assert "Traceback" not in done.output
    ids = [one["id"] for one in await allot.listed("olga")]
    for other in ids:
        for one in ids:
            body = {"to": other, "amount": "1", "reason": "x"}
            answer = await allot.send("olga", "POST", f"budgets/{one}/transfers", body)
            assert answer.json()["code"] == "bad_options", "another unit, the same one, or everybody's"
    for key, value in (
        *(("amount", one) for one in ("-1", "NaN", "1e30", "0.0000001")), ("name", ""), ("name", "a\nb"),
        ("scope", "all"), ("period", "day"), ("unit", "hours"), ("owner", ""),
    ):  # fmt: skip
        answer = await allot.send("olga", "POST", "budgets", PHYSICS | {"name": "new", key: value})
        assert answer.status_code == 422, (key, value)
    answer = await allot.send("olga", "POST", "budgets", PHYSICS)
    assert (answer.status_code, answer.json()["code"]) == (409, "name_taken")
