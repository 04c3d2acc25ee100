"""What the reconciler makes of engine, agent, hub and machine when they fail, restart or forget."""

from __future__ import annotations

from pathlib import Path

import pytest
from allotment_hub.broker.factory import Broker
from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_spawner.wire import LeaseView
from allotment_testing.broker_world import BrokerWorld
from allotment_testing.protocol_spawner import ProtocolSpawner


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    return BrokerWorld(tmp_path)


async def view_of(broker: Broker, spawner: ProtocolSpawner) -> LeaseView:
    return (await broker.leases.get(spawner.lease)).lease


async def started(world: BrokerWorld, broker: Broker, flavor: str = "gpu-10gb") -> ProtocolSpawner:
    """As far as a container that runs, with the broker not told yet that it is ready."""
    spawner = ProtocolSpawner(world, "ada", flavor=flavor)
    await spawner.request(broker)
    spawner.create()
    await spawner.confirm(broker)
    spawner.start()
    return spawner


async def test_a_running_session_survives_restarts_of_broker_hub_and_agent(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.run(broker)
    for _ in range(3):
        world.restart_agent()
        world.hub.away = True
        async with world.broker() as broker:
            await world.rounds(broker, 30)
            assert (await view_of(broker, spawner)).state is LeaseState.ACTIVE
        world.hub.away = False
    assert world.engine.stopped == []


async def test_adoption_of_what_the_hub_calls_ready(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = await started(world, broker)
    async with world.broker() as broker:
        world.hub.servers["ada", ""] = "ready"
        await world.rounds(broker, 5)
        lease = await view_of(broker, spawner)
        assert lease.state is LeaseState.ACTIVE
        assert lease.active_at is not None


async def test_adoption_refuses_other_devices(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.request(broker)
        spawner.ref = world.engine.create(spawner.lease, user="ada", server="", devices=["MIG-other"])
        await spawner.confirm(broker)
        world.engine.start(spawner.ref)
        world.hub.servers["ada", ""] = "ready"
        await world.rounds(broker, 8)
        lease = await view_of(broker, spawner)
        assert (lease.state, lease.end_reason) == (LeaseState.ENDED, EndReason.DEVICE_MISMATCH)
        assert world.engine.workloads == {}


async def test_a_start_that_the_hub_forgot_fails_and_is_stopped(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = await started(world, broker)
        world.hub.servers.clear()
        await world.rounds(broker, 20)
        lease = await view_of(broker, spawner)
        assert (lease.state, lease.end_reason) == (LeaseState.ENDED, EndReason.START_FAILED)
        assert world.engine.workloads == {}


async def test_an_orphan_is_ended_within_a_minute_and_only_on_the_hubs_word(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.run(broker)
        world.hub.servers.clear()
        world.hub.away = True
        await world.rounds(broker, 100)
        assert (await view_of(broker, spawner)).state is LeaseState.ACTIVE, "unknown is not gone"
        world.hub.away = False
        await world.rounds(broker, 60)
        lease = await view_of(broker, spawner)
        assert (lease.state, lease.end_reason) == (LeaseState.ENDED, EndReason.ABANDONED)
        assert world.engine.workloads == {}


async def test_a_server_that_ends_by_itself(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.run(broker)
        assert spawner.ref is not None
        world.engine.exit(spawner.ref, 1)
        await world.rounds(broker, 3)
        lease = await view_of(broker, spawner)
        assert (lease.state, lease.end_reason) == (LeaseState.ENDED, EndReason.WORKLOAD_EXITED)
        assert world.engine.workloads == {}, "what exited is removed too"


async def test_a_stop_that_the_broker_missed_is_a_stop(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.run(broker)
    assert spawner.ref is not None
    world.engine.remove(spawner.ref)
    world.hub.servers.clear()
    async with world.broker() as broker:
        await world.rounds(broker, 2)
        lease = await view_of(broker, spawner)
        assert (lease.state, lease.end_reason) == (LeaseState.ENDED, EndReason.STOPPED)


async def test_a_stop_that_the_hub_failed_is_finished_by_the_broker(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.run(broker)
        world.engine.stops_fail = True
        await broker.leases.release(lease_id=spawner.lease, reason=EndReason.STOPPED, attempt=None)
        await world.rounds(broker, 10)
        lease = await view_of(broker, spawner)
        assert (lease.state, lease.stopped_at) == (LeaseState.ENDING, None), "it still runs"
        world.engine.stops_fail = False
        await world.rounds(broker, 3)
        lease = await view_of(broker, spawner)
        assert lease.state is LeaseState.ENDED
        assert lease.stopped_at is not None
        assert world.engine.stopped == [spawner.ref]


@pytest.mark.parametrize("silent", ["engine", "agent"])
async def test_unknown_frees_nothing(world: BrokerWorld, silent: str) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.run(broker)
        if silent == "engine":
            world.engine.silent = True
        else:
            world.agent.stop_answering()
        await spawner.stop(broker)
        await world.rounds(broker, 30)
        assert (await view_of(broker, spawner)).state is LeaseState.ENDING
        explanation = await broker.explainer.explain(spawner.lease, for_operator=False)
        assert any("does not answer" in rule.sentence for rule in explanation.rules)
        world.engine.silent = False
        world.agent.answer_again()
        await world.rounds(broker, 2)
        assert (await view_of(broker, spawner)).state is LeaseState.ENDED


async def test_a_process_left_on_the_device_quarantines_it(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.run(broker)
        world.engine.on_removed = lambda _workload: None
        await spawner.stop(broker)
        await world.rounds(broker, 5)
        lease = await view_of(broker, spawner)
        assert lease.state is LeaseState.ENDING
        assert lease.stopped_at is not None, "money stopped with the workload"
        piece = (await broker.fleet.view()).gpus[0].slices[0]
        assert piece.state == "quarantined"
        assert str(spawner.pid) in (piece.note or "")
        world.agent.control.unload(pid=spawner.pid)
        await world.rounds(broker, 2)
        assert (await view_of(broker, spawner)).state is LeaseState.ENDED


async def test_a_restart_of_the_machine_ends_what_had_a_device(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.run(broker)
        world.engine.restart_without_live_restore()
        world.agent.control.reboot()
        await world.rounds(broker, 4)
        lease = await view_of(broker, spawner)
        assert (lease.state, lease.end_reason) == (LeaseState.ENDED, EndReason.NODE_RESTARTED)
        again = ProtocolSpawner(world, "ada")
        assert (await again.run(broker)).lease.state is LeaseState.ACTIVE


async def test_an_engine_restart_ends_sessions_unbilled_from_then(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.run(broker)
        await world.rounds(broker, 2)
        world.engine.silent = True
        await world.rounds(broker, 1)
        down_since = world.clock.now
        await world.rounds(broker, 40)
        world.engine.restart_without_live_restore()
        world.engine.silent = False
        await world.rounds(broker, 3)
        lease = await view_of(broker, spawner)
        assert (lease.state, lease.end_reason) == (LeaseState.ENDED, EndReason.ENGINE_STOPPED)
        assert lease.stopped_at == down_since


async def test_a_session_that_an_engine_restart_keeps_goes_on(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.run(broker)
        world.engine.silent = True
        await world.rounds(broker, 40)
        world.engine.silent = False
        await world.rounds(broker, 40)
        assert (await view_of(broker, spawner)).state is LeaseState.ACTIVE


async def test_a_workload_of_an_unknown_lease_is_held_and_left_alone(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.run(broker)
        device = spawner.device
        await spawner.stop(broker)
        await world.rounds(broker, 2)
        ref = world.engine.create("feedfeedfeedfeed", user="eve", server="", devices=[device])
        world.engine.start(ref)
        await world.rounds(broker, 2)
        fleet = await broker.fleet.view()
        assert [stray.engine_ref for stray in fleet.strays] == [ref]
        assert fleet.gpus[0].slices[0].state == "held"
        other = ProtocolSpawner(world, "bob")
        await other.run(broker)
        assert other.device != device
        await world.rounds(broker, 60)
        assert ref in world.engine.workloads


async def test_a_container_of_an_ended_lease_is_removed(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.run(broker)
        await spawner.stop(broker)
        await world.rounds(broker, 2)
        world.engine.create(spawner.lease, user="ada", server="", devices=[])
        await world.rounds(broker, 2)
        assert world.engine.workloads == {}


@pytest.mark.parametrize("index", [0, 1])
async def test_a_device_with_an_unexplained_process_is_not_offered(world: BrokerWorld, index: int) -> None:
    async with world.broker() as broker:
        flavor = ("gpu-10gb", "gpu-full")[index]
        first = ProtocolSpawner(world, "ada", flavor=flavor)
        await first.run(broker)
        device = first.device
        await first.stop(broker)
        await world.rounds(broker, 2)
        pid = world.agent.control.load(device)
        await world.rounds(broker)
        gpu = (await broker.fleet.view()).gpus[index]
        assert [(one.pid, one.explained) for one in gpu.processes] == [(pid, False)]
        free = {one.id: one.free for one in await broker.fleet.flavors("ada")}
        assert free[flavor] == (6, 0)[index]
        second = ProtocolSpawner(world, "ada", flavor=flavor)
        reply = await second.request(broker)
        if index == 1:
            assert reply.lease.state is LeaseState.QUEUED
            return
        assert second.device != device


async def test_a_hanging_cut_moves_the_lease_to_another_card(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, spec="sim:2xA100-80GB:mig")
    async with world.broker() as broker:
        first = ProtocolSpawner(world, "ada")
        await first.run(broker)
        gpu = first.reply
        assert gpu is not None
        busy = gpu.lease.devices[0].gpu_uuid
        world.agent.control.hang(busy, "ensure_slice")
        second = ProtocolSpawner(world, "bob")
        reply = await second.request(broker)
        assert reply.lease.state is LeaseState.QUEUED
        assert reply.lease.devices == ()
        await world.rounds(broker, 3)
        assert (await view_of(broker, first)).state is LeaseState.ACTIVE
