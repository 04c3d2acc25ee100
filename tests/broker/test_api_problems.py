"""Every wrong input is a problem with a sentence; none is a failure of ours."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from allotment_testing.broker_api import HUB_TOKEN, BrokerApi, broker_api
from allotment_testing.fake_hub_api import ACCESS, HubThatAnswers500, HubThatIsSilent

KEY = {"Idempotency-Key": "one"}
GOOD = {"user": "ann", "server": "", "environment": "minimal", "flavor": "cpu"}


# One broker for all: wrong input must leave no trace, so these tests may share it.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def api(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BrokerApi]:
    async with broker_api(tmp_path_factory.mktemp("broker")) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def hub(api: BrokerApi) -> AsyncIterator[httpx.AsyncClient]:
    async with api.client(HUB_TOKEN) as client:
        yield client


def check(answer: httpx.Response, status: int, code: str) -> None:
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (answer.status_code, problem["status"], problem["code"]) == (status, status, code), problem
    assert problem["detail"].strip()
    assert problem["next_step"].strip()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "bad_options"),
        (b"{", "bad_options"),
        (b"null", "bad_options"),
        (b"[]", "bad_options"),
        (b'"\xff\xfe"', "bad_request"),
        (b"\x00", "bad_options"),
        (b"[" * 20_000, "bad_request"),
        (b"1" * 10_000, "bad_request"),
        (b'{"user": NaN}', "bad_options"),
        (b'{"user": "\\ud800", "environment": "minimal", "flavor": "cpu"}', "bad_options"),
        (json.dumps(GOOD | {"user": "a\x00b"}).encode(), "bad_options"),
        (json.dumps(GOOD | {"server": "\n"}).encode(), "bad_options"),
        (json.dumps(GOOD | {"user": "x" * 256}).encode(), "bad_options"),
        (json.dumps(GOOD | {"flavor": ["cpu"]}).encode(), "bad_options"),
        (json.dumps(GOOD | {"flavor": {"$ne": 1}}).encode(), "bad_options"),
        (json.dumps(GOOD | {"flavor": "../cpu"}).encode(), "bad_options"),
        (json.dumps(GOOD | {"extra": 1}).encode(), "bad_options"),
        (json.dumps(GOOD | {"user": 10**400}).encode(), "bad_options"),
    ],
    ids=range(18),
)
async def test_bad_bodies(hub: httpx.AsyncClient, body: bytes, code: str) -> None:
    headers = {**KEY, "Content-Type": "application/json"}
    check(await hub.post("leases", content=body, headers=headers), 422, code)


async def test_bad_values_are_never_echoed(hub: httpx.AsyncClient) -> None:
    answer = await hub.post("leases", json=GOOD | {"flavor": "S3cret value"}, headers=KEY)
    check(answer, 422, "bad_options")
    assert "S3cret" not in answer.text
    assert "flavor" in answer.text


@pytest.mark.parametrize("content_type", ["text/plain", "application/xml", "multipart/form-data", "ä/ö"])
async def test_other_content_types(hub: httpx.AsyncClient, content_type: str) -> None:
    headers = [(b"Idempotency-Key", b"one"), (b"Content-Type", content_type.encode())]
    check(await hub.post("leases", content=b"a=b", headers=headers), 422, "bad_options")


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 129, "ä", "-a", "a\tb"])
async def test_bad_idempotency_keys(hub: httpx.AsyncClient, key: str) -> None:
    answer = await hub.post("leases", json=GOOD, headers=[(b"Idempotency-Key", key.encode())])
    check(answer, 422, "bad_request")
    check(await hub.post("leases", json=GOOD), 422, "bad_request")


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=-1", "limit=201", f"limit={'9' * 5000}", "limit=1e3", "limit=x", "live=perhaps",
     "user=%00", "user=", f"user={'x' * 256}", "server=%0a", "limit=", "user=%0d%0aX: y"],
)  # fmt: skip
async def test_bad_queries(hub: httpx.AsyncClient, query: str) -> None:
    check(await hub.get(f"leases?{query}"), 422, "bad_request")


@pytest.mark.parametrize(
    "query", ["user=%ff%fe", "user=%F0%9F%92%BB", "server=%ed%a0%80", "x=1&x=2", "&&&=", "%"]
)
async def test_odd_queries_are_fine(hub: httpx.AsyncClient, query: str) -> None:
    assert (await hub.get(f"leases?{query}")).status_code == 200


@pytest.mark.parametrize(
    "lease_id",
    ["%00", "%ff", "..%2f..", "x" * 65, "x" * 5000, "%F0%9F%92%BB", "'%20or%201=1", "%0a", "%7B%7D"],
)
@pytest.mark.parametrize("route", ["GET {}", "GET {}/events", "GET {}/explain", "DELETE {}", "PUT {}/renew"])
async def test_odd_lease_ids_are_unknown(hub: httpx.AsyncClient, lease_id: str, route: str) -> None:
    method, path = route.split(" ")
    answer = await hub.request(method, "leases/" + path.format(lease_id), headers=KEY)
    assert answer.status_code in (404, 422)
    assert answer.json()["code"] in ("no_such_lease", "no_such_path", "bad_request")


async def test_unknown_paths_and_methods(api: BrokerApi, hub: httpx.AsyncClient) -> None:
    check(await hub.get("nothing"), 404, "no_such_path")
    check(await hub.get("flavors/"), 404, "no_such_path")
    answer = await hub.patch("leases")
    check(answer, 405, "method_not_allowed")
    assert answer.headers["allow"]
    check(await hub.get("http://broker/elsewhere"), 404, "no_such_path")
    check(await hub.get("http://broker/services/allotment/static/../main.py"), 404, "no_such_path")
    check(await hub.get("http://broker/services/allotment/static/%2e%2e/render.py"), 404, "no_such_path")


async def test_large_bodies_are_refused_before_they_are_read(api: BrokerApi) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 4096

    async with api.client() as nobody:
        check(await nobody.post("leases", content=b"x" * 70_000), 413, "too_large")
        check(await nobody.post("leases", content=endless()), 413, "too_large")
        check(await nobody.post("leases", headers={"Content-Length": "9" * 30}), 413, "too_large")


async def test_security_headers_are_everywhere(hub: httpx.AsyncClient) -> None:
    for path in ("me", "nothing", "openapi.json", "http://broker/services/allotment/health"):
        headers = (await hub.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize("transport", [HubThatIsSilent(), HubThatAnswers500()])
async def test_a_silent_hub_is_503_for_all_but_the_hub_itself(
    tmp_path: Path, transport: httpx.AsyncBaseTransport
) -> None:
    async with broker_api(tmp_path, transport=transport) as api:
        async with api.client("some-person's-token") as person:
            answer = await person.get("me")
        check(answer, 503, "hub_unavailable")
        assert answer.headers["retry-after"]
        async with api.client(HUB_TOKEN) as hub:
            assert (await hub.get("me")).json()["act_as"] is True
            # the hub's own client tries again on this word
            check(await hub.get("flavors?user=ann"), 503, "broker_unavailable")


async def test_before_the_first_reconcile_only_health_answers(api: BrokerApi, hub: httpx.AsyncClient) -> None:
    api.context.ready = False
    assert (await hub.get("http://broker/services/allotment/health")).json()["ready"] is False
    check(await hub.get("flavors?user=ann"), 503, "broker_unavailable")
    api.context.ready = True
    assert (await hub.get("http://broker/services/allotment/health")).json()["ready"] is True


async def test_tokens_with_odd_bytes(api: BrokerApi) -> None:
    for token in ("x" * 513, "a\x7fb", "é", "a b", ""):
        header = f"Bearer {token}".encode()
        async with api.client() as client:
            check(await client.get("me", headers=[(b"Authorization", header)]), 401, "sign_in_needed")
    assert api.hub.asked == ["user"] or api.hub.asked == []


async def test_a_mistake_of_ours_is_a_problem_without_its_text(
    api: BrokerApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaks(user: str) -> None:
        raise RuntimeError("a secret path")

    monkeypatch.setattr(api.context, "fleet", type("BrokenFleet", (), {"flavors": staticmethod(breaks)})())
    api.hub.add_user("ann")
    async with api.client(api.hub.add_token("ann", ACCESS)) as person:
        answer = await person.get("flavors")
    check(answer, 500, "internal_error")
    assert "secret" not in answer.text
