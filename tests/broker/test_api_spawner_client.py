"""The spawner's own client against the real API: every call that a start makes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from allotment_spawner.core.errors import (
    BrokerUnavailable,
    NoSuchLease,
    StaleAttempt,
    UnknownFlavor,
    WrongState,
)
from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_spawner.spawners.broker_client import BrokerClient
from allotment_spawner.wire import Activate, Confirm, LeaseRequest
from allotment_testing.broker_api import HUB_TOKEN, BrokerApi, broker_api, until


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[BrokerApi]:
    async with broker_api(tmp_path / "data") as made:
        for name in ("ann", "ben"):
            made.hub.add_user(name)
        yield made


@pytest.fixture
async def client(api: BrokerApi, tmp_path: Path) -> AsyncIterator[BrokerClient]:
    (tmp_path / "token").write_text(HUB_TOKEN + "\n", encoding="ascii")
    async with api.served() as url:
        made = BrokerClient(url=url, token_file=tmp_path / "token", retry_for_s=2)
        yield made
        await made.close()


def wish(user: str, flavor: str = "gpu-full") -> LeaseRequest:
    return LeaseRequest(user=user, environment="minimal", flavor=flavor)


async def test_a_start_from_request_to_release(client: BrokerClient) -> None:
    first = await client.request(wish("ann"), attempt="a1")
    assert first.lease.state is LeaseState.GRANTED
    assert first.launch is not None
    lease = first.lease.id
    waiting = await client.request(wish("ben"), attempt="b1")
    assert (waiting.lease.state, waiting.lease.place) == (LeaseState.QUEUED, 1)
    events = client.events(waiting.lease.id, attempt="b1")
    assert (await anext(events)).type == "queued"

    await client.renew(lease, attempt="a1")
    await client.confirm(lease, attempt="a1", body=Confirm(engine_ref=lease))
    active = await client.activate(lease, attempt="a1", body=Activate(devices_seen=first.launch.devices))
    assert active.lease.state is LeaseState.ACTIVE
    again = (await client.get(lease)).lease
    assert again.model_copy(update={"cost": active.lease.cost}) == active.lease
    assert [one.id for one in await client.leases(user="ann", live=True)] == [lease]

    await client.release(lease, reason=EndReason.STOPPED, attempt="a1")
    rest = [event.type async for event in events]
    assert rest[-1] == "granted"
    assert set(rest[:-1]) <= {"queued"}
    assert (await client.leases(user="ben", live=True))[0].state is LeaseState.GRANTED


async def test_refusals_arrive_as_themselves(client: BrokerClient) -> None:
    with pytest.raises(UnknownFlavor):
        await client.request(wish("ann", "gpu-99tb"), attempt="a1")
    reply = await client.request(wish("ann", "cpu"), attempt="a2")
    with pytest.raises(StaleAttempt):
        await client.renew(reply.lease.id, attempt="a0")
    await client.release(reply.lease.id, reason=EndReason.CANCELLED)
    with pytest.raises(WrongState):
        await client.confirm(reply.lease.id, attempt="a2", body=Confirm(engine_ref="x"))
    with pytest.raises(NoSuchLease):
        await client.get("unknown")
    with pytest.raises(StaleAttempt):
        await anext(client.events(reply.lease.id, attempt="a0"))


async def test_choices_and_changes(client: BrokerClient) -> None:
    assert {one.id for one in await client.flavors("ann")} >= {"cpu", "gpu-full"}
    assert {one.id for one in await client.environments("ann")} == {"minimal", "pytorch"}
    changes = client.changes()
    before = await anext(changes)
    await client.request(wish("ann", "cpu"), attempt="a1")
    assert await anext(changes) > before
    await changes.aclose()


async def test_a_broker_that_is_just_starting_is_tried_again(api: BrokerApi, client: BrokerClient) -> None:
    api.context.ready = False
    with pytest.raises(BrokerUnavailable):
        await client.flavors("ann")
    api.context.ready = True
    assert await client.flavors("ann")


async def test_a_waiter_that_goes_is_no_longer_connected(api: BrokerApi, client: BrokerClient) -> None:
    await client.request(wish("ann"), attempt="a1")
    waiting = await client.request(wish("ben"), attempt="b1")
    events = client.events(waiting.lease.id, attempt="b1")
    await anext(events)
    assert api.context.streams.open_streams == 1
    await events.aclose()
    await until(lambda: api.context.streams.open_streams == 0)
