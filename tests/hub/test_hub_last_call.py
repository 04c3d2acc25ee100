"""Before a stop the pages are called while the proxy still leads to their server; nothing can hold it up."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from allotment_spawner.core.lease import LeaseState
from allotment_testing.fake_broker import FakeBroker
from allotment_testing.hub_calls import CPU, ask, gone, ready, stop
from allotment_testing.hub_process import HubProcess, until

pytestmark = pytest.mark.asyncio(loop_scope="module")

HUB_CONFIG = 'c.JupyterHub.proxy_class = "allotment_spawner.spawners.proxy.LastCallProxy"'
CALL = "POST last-call"


async def leads_to_the_server(hub: HubProcess, user: str) -> bool:
    """Whether a page of this person could still save; the hub answers 424 for a server that is gone."""
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(f"{hub.url}/user/{user}/api")
    return answer.status_code == 200


async def test_the_route_is_there_until_the_pages_have_answered(hub: HubProcess, broker: FakeBroker) -> None:
    await ask(hub, "ann", CPU)
    await ready(hub, "ann")
    broker.hold(CALL)
    # the hub answers only once the server is gone
    stopping = asyncio.ensure_future(stop(hub, "ann"))
    await until(lambda: CALL in broker.held_calls, what="the pages are called")
    assert await leads_to_the_server(hub, "ann")
    assert broker.of("ann").state is LeaseState.ACTIVE
    broker.let_go()
    assert (await stopping).status_code == 204
    await gone(hub, "ann")
    await until(lambda: broker.of("ann").state is LeaseState.ENDED, what="the lease is over")
    assert not await leads_to_the_server(hub, "ann")
    assert broker.calls.count(CALL) == 1


async def test_a_broker_that_never_answers_holds_a_stop_up_for_seconds_only(
    hub: HubProcess, broker: FakeBroker
) -> None:
    await ask(hub, "ben", CPU)
    await ready(hub, "ben")
    broker.hold(CALL)
    await stop(hub, "ben")
    await gone(hub, "ben")
    await until(lambda: broker.of("ben").state is LeaseState.ENDED, what="the lease is over")
    broker.let_go()


async def test_a_broker_that_is_down_holds_nothing_up(hub: HubProcess, broker: FakeBroker) -> None:
    await ask(hub, "eve", CPU)
    await ready(hub, "eve")
    await broker.down()
    await stop(hub, "eve")
    await gone(hub, "eve")
    await broker.up()
    await until(lambda: broker.of("eve").state is LeaseState.ENDED, what="the lease is over", limit_s=60)
