"""A hub that is killed: running sessions go on, half-finished starts are finished or forgotten cleanly."""

from __future__ import annotations

import os
import signal

import pytest
from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_testing.fake_broker import FakeBroker
from allotment_testing.hub_calls import CPU, TEN, ask, gone, processes_of, ready, stop
from allotment_testing.hub_process import HubProcess, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_running_session_outlives_the_hub(hub: HubProcess, broker: FakeBroker) -> None:
    await ask(hub, "ann", TEN)
    before = await ready(hub, "ann")
    await hub.kill_hub()
    calls = len(broker.calls)
    await hub.start_hub()
    after = await ready(hub, "ann")
    assert after["state"]["pid"] == before["state"]["pid"]
    assert after["state"]["allotment"] == before["state"]["allotment"]
    lease = broker.of("ann")
    assert broker.live() == [lease]
    assert not [call for call in broker.calls[calls:] if call.startswith(("DELETE", "POST"))]
    await stop(hub, "ann")
    await gone(hub, "ann")
    assert lease.state is LeaseState.ENDED
    assert processes_of(lease.id) == []


async def test_a_hub_killed_between_start_and_active_finishes_the_start(
    hub: HubProcess, broker: FakeBroker
) -> None:
    broker.hold("PUT active")
    await ask(hub, "eve", TEN)
    await until(lambda: "PUT active" in broker.held_calls, what="the server answers", limit_s=60)
    lease = broker.of("eve")
    await hub.kill_hub()
    broker.let_go()
    lease.state = LeaseState.GRANTED  # the answer never came
    pids = processes_of(lease.id)
    assert pids
    await hub.start_hub()
    model = await ready(hub, "eve")
    await until(lambda: lease.state is LeaseState.ACTIVE, what="the hub reports it active")
    assert processes_of(lease.id)
    assert model["ready"]
    await stop(hub, "eve")
    await gone(hub, "eve")
    await until(lambda: not processes_of(lease.id), what="it is gone")


async def test_a_hub_killed_before_the_gate_opens_leaves_no_process(
    hub: HubProcess, broker: FakeBroker
) -> None:
    broker.hold("PUT confirm")
    await ask(hub, "gus", TEN)
    await until(lambda: "PUT confirm" in broker.held_calls, what="the process waits at its gate")
    first = broker.of("gus")
    await hub.kill_hub()
    broker.let_go()
    await until(lambda: not processes_of(first.id), what="the gate ends with the hub")
    await hub.start_hub()
    await gone(hub, "gus")
    assert first.state is LeaseState.GRANTED, "the broker ends it or a new attempt takes it over"


async def test_a_silent_session_is_not_stopped_by_the_check(hub: HubProcess, broker: FakeBroker) -> None:
    await ask(hub, "sam", CPU)
    pid = (await ready(hub, "sam"))["state"]["pid"]
    await hub.kill_hub()
    os.kill(pid, signal.SIGSTOP)
    try:
        await hub.start_hub()
        # shown as running, so that its person can stop it; the check itself goes on
        await ready(hub, "sam")
        assert processes_of(broker.of("sam").id)
        assert broker.of("sam").state is LeaseState.ACTIVE
    finally:
        os.kill(pid, signal.SIGCONT)
    model = await ready(hub, "sam")
    assert model["state"]["pid"] == pid
    await stop(hub, "sam")
    await gone(hub, "sam")
    await until(lambda: broker.of("sam").state is LeaseState.ENDED, what="the lease ends")


async def test_a_silent_session_can_be_stopped_on_request(hub: HubProcess, broker: FakeBroker) -> None:
    await ask(hub, "tom", CPU)
    pid = (await ready(hub, "tom"))["state"]["pid"]
    await hub.kill_hub()
    os.kill(pid, signal.SIGSTOP)
    await hub.start_hub()
    await ready(hub, "tom")
    lease = broker.of("tom")
    await stop(hub, "tom")
    await gone(hub, "tom")
    await until(lambda: not processes_of(lease.id), what="it is killed", limit_s=30)
    assert lease.state is LeaseState.ENDED
    # the check that still waited decides nothing about the next server
    await ask(hub, "tom", CPU)
    await ready(hub, "tom")
    await stop(hub, "tom")
    await gone(hub, "tom")


async def test_a_graceful_stop_of_the_hub_keeps_a_place_in_the_queue(
    hub: HubProcess, broker: FakeBroker
) -> None:
    for left in broker.live():
        broker.end(left, EndReason.ABANDONED)
    for name in ("x1", "x2"):
        await ask(hub, name, TEN)
        await ready(hub, name)
    await ask(hub, "una", TEN)
    lease = await until(lambda: broker.of("una"), what="the lease is queued")
    await hub.stop_hub()
    assert lease.state is LeaseState.QUEUED
    await hub.start_hub()
    await gone(hub, "una")
    assert lease.state is LeaseState.QUEUED
    for name in ("x1", "x2"):
        await ready(hub, name)
        await stop(hub, name)
        await gone(hub, name)
