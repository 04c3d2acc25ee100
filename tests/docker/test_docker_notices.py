"""A session in a container follows the broker from inside: what it is, what it is told, its last call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from allotment_hub.host.probes import request
from allotment_testing.installation import Installation, wait_until
from allotment_testing.recovery_checks import Session
from allotment_testing.workloads import Containers
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

SAID = "We restart at six."


@pytest.fixture(scope="module")
def session(installation: Installation, containers: Containers) -> Session:
    return Session(installation=installation, workloads=containers)


@pytest.fixture(scope="module")
def lease(session: Session) -> dict[str, Any]:
    return session.start("gpu-10gb")


def test_the_server_says_what_it_is(session: Session, lease: dict[str, Any]) -> None:
    answer = request(f"{session.url}allotment/session", token=session.token, timeout_s=20)
    document = answer.json()
    assert document["lease"] == lease["id"], answer.body
    assert document["since"] == lease["active_at"], "the broker is reached from the container"
    assert (document["flavor_title"], document["price_per_hour"]) == ("10 GB GPU", lease["price_per_hour"])
    assert document["simulated"] is True
    assert document["home"]["free_bytes"] > 0
    assert request(f"{session.url}allotment/session", timeout_s=20).status in (302, 403)


def test_messages_arrive_and_the_last_call_is_answered(
    installation: Installation, session: Session, lease: dict[str, Any]
) -> None:
    async def talk(page: WebSocketClientConnection) -> list[str]:
        kinds = [(await heard(page))["type"]]
        await asyncio.to_thread(say, installation, lease["id"])
        kinds.append((await heard(page))["sentence"])
        stopping = asyncio.ensure_future(asyncio.to_thread(session.stop))
        call = await heard(page)
        kinds.append(call["type"])
        await page.write_message(json.dumps({"type": "saved", "id": call["id"], "saved": 2, "failed": 0}))
        await stopping
        return kinds

    assert asyncio.run(asyncio.wait_for(as_page(session, talk), 90)) == ["notices", SAID, "last_call"]
    wait_until(lambda: session.lease(lease["id"])["state"] == "ended", what="it is over")
    assert session.lease(lease["id"])["end_reason"] == "stopped"


async def as_page(session: Session, talk: Callable[[WebSocketClientConnection], Awaitable[Any]]) -> Any:
    address = f"{session.url.replace('http', 'ws', 1)}allotment/notices"
    page = await websocket_connect(HTTPRequest(address, headers={"Authorization": f"token {session.token}"}))
    try:
        return await talk(page)
    finally:
        page.close()


async def heard(page: WebSocketClientConnection) -> dict[str, Any]:
    text = await page.read_message()
    assert text is not None, "the server closed the socket"
    found: dict[str, Any] = json.loads(text)
    return found


def say(installation: Installation, lease: str) -> None:
    connection = installation.connection
    url = f"{connection.broker_url}api/v1/leases/{lease}/notices"
    answer = request(url, method="POST", token=connection.admin_token, body={"sentence": SAID}, timeout_s=20)
    assert answer.status == 201, answer.body
