"""Attacks on the broker's HTTP side: streams, bodies, headers, guessed ids, the browser's cookie."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from allotment_testing.broker_api import HUB_TOKEN, BrokerApi, broker_api, until
from allotment_testing.fake_hub_api import ACCESS


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[BrokerApi]:
    async with broker_api(tmp_path) as made:
        for name in ("ann", "ben", "a.b@c", "жук"):
            made.hub.add_user(name)
        yield made


BODIES: list[bytes] = [
    b'{"user": "\\ud800", "environment": "minimal", "flavor": "cpu"}',
    b'{"user": "a\\u0000b", "environment": "minimal", "flavor": "cpu"}',
    b'{"user": "ann", "environment": "minimal", "flavor": "cpu", "server": "\\udfff"}',
    b'{"user": "ann", "environment": "minimal", "flavor": "cpu", "user": 5}',
    b'{"user": "ann", "environment": "minimal", "flavor": "cpu", "devices": ["x"]}',
    b"[" * 30000,
    b'{"user": 1e400}',
    b'{"user": ' + b"9" * 5000 + b"}",
    b"\xff\xfe{}",
    b"null",
    b"",
    b"NaN",
]


@pytest.mark.parametrize("body", BODIES)
async def test_no_body_breaks_it(api: BrokerApi, body: bytes) -> None:
    async with api.client(HUB_TOKEN) as hub:
        headers = {"Idempotency-Key": str(uuid4()), "Content-Type": "application/json"}
        answer = await hub.post("leases", content=body, headers=headers)
        assert 400 <= answer.status_code < 500, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        reply: Any = await api.lease("ann", flavor="cpu")
        for step in ("confirm", "active"):
            answer = await hub.put(f"leases/{reply['lease']['id']}/{step}", content=body, headers=headers)
            assert 400 <= answer.status_code < 500, answer.text


@pytest.mark.parametrize("lease", ["%2e%2e", "a" * 65, "é", "%00", "a/b", "a%2fb", "0" * 16, "-" * 16])
async def test_no_id_breaks_it(api: BrokerApi, lease: str) -> None:
    async with api.client(api.hub.add_token("ann", ACCESS)) as ann:
        for path in (f"leases/{lease}", f"leases/{lease}/explain", f"leases/{lease}/events"):
            answer = await ann.get(path)
            assert answer.status_code in (404, 405), (path, answer.status_code)
        assert (await ann.delete(f"leases/{lease}")).status_code in (404, 405)


@pytest.mark.parametrize("name", ["a.b@c", "жук"])
async def test_a_name_is_only_ever_itself(api: BrokerApi, name: str) -> None:
    reply: Any = await api.lease(name, flavor="cpu")
    async with api.client(api.hub.add_token(name, ACCESS)) as own:
        assert [one["user"] for one in (await own.get("leases")).json()] == [name]
        assert (await own.get(f"leases/{reply['lease']['id']}")).status_code == 200
    async with api.client(api.hub.add_token("ben", ACCESS)) as other:
        assert (await other.get(f"leases/{reply['lease']['id']}")).status_code == 404
        assert (await other.get("leases", params={"user": name})).status_code == 403


async def test_headers_make_nobody_the_hub(api: BrokerApi) -> None:
    forged = {
        "X-Allotment-Groups": "staff",
        "X-Forwarded-User": "hub",
        "X-Forwarded-For": "127.0.0.1",
        "Idempotency-Key": str(uuid4()),
    }
    async with api.client(api.hub.add_token("ann", ACCESS)) as ann:
        body = {"user": "ann", "environment": "minimal", "flavor": "staff"}
        assert (await ann.post("leases", json=body, headers=forged)).status_code == 403
        flavors = (await ann.get("flavors", headers=forged)).json()
        assert [one["available"] for one in flavors if one["id"] == "staff"] in ([], [False])
    async with api.client(HUB_TOKEN) as hub:
        refused = await hub.post("leases", json=body, headers=forged)
        assert refused.json()["code"] == "flavor_not_allowed"


async def test_one_person_cannot_take_all_streams(api: BrokerApi) -> None:
    """All at once: the limit must hold for calls that arrive together."""
    token = api.hub.add_token("ann", ACCESS)
    reply: Any = await api.lease("ann", flavor="cpu")
    statuses: list[int] = []
    async with api.served() as url:
        limits = httpx.Limits(max_connections=80)
        async with httpx.AsyncClient(trust_env=False, timeout=15, limits=limits) as client:
            done = asyncio.Event()

            async def one() -> None:
                address = f"{url}api/v1/leases/{reply['lease']['id']}/events"
                headers = {"Authorization": f"Bearer {token}"}
                async with client.stream("GET", address, headers=headers) as answer:
                    statuses.append(answer.status_code)
                    if len(statuses) == 60:
                        done.set()
                    await done.wait()

            await asyncio.gather(*(one() for _ in range(60)))
        await until(lambda: api.context.streams.open_streams == 0)
    assert statuses.count(200) <= 24
    assert set(statuses) == {200, 429}


async def test_what_is_logged_holds_no_secret(api: BrokerApi, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    token = api.hub.add_token("ann", ACCESS)
    async with api.client(token) as ann:
        await ann.get("me", params={"token": token})
        await ann.get("leases", headers={"Cookie": f"allotment-session={token}"})
    async with api.client("made-up-secret-token") as nobody:
        assert (await nobody.get("me")).status_code == 401
    ours = [str(record.__dict__) for record in caplog.records if record.name.startswith("allotment")]
    assert ours
    assert all(token not in line and "made-up-secret" not in line for line in ours)
