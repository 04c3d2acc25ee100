"""Attacks on rules, names and clocks through the broker's services."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from allotment_hub.broker.factory import Broker
from allotment_hub.site import Policies, Pool, Site
from allotment_spawner.core.errors import BadOptions, DeviceBusy, Refusal, StaleAttempt
from allotment_spawner.core.inventory import Slice
from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_spawner.wire import LeaseRequest
from allotment_testing.broker_world import BrokerWorld
from allotment_testing.protocol_spawner import ProtocolSpawner
from pydantic import ValidationError

ONE_MIG = "sim:1xA100-80GB:mig"


async def state_of(broker: Broker, spawner: ProtocolSpawner) -> LeaseState:
    return (await broker.leases.get(spawner.lease)).lease.state


async def test_a_moment_of_trouble_queues_a_request_and_refuses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = BrokerWorld(tmp_path, spec=ONE_MIG)
    async with world.broker() as broker:

        async def busy(gpu_uuid: str, profile: str, start: int) -> Slice:
            raise DeviceBusy(f"A profiler holds {gpu_uuid} {profile} {start}.", "Wait.")

        with monkeypatch.context() as patched:
            patched.setattr(world.agent, "ensure_slice", busy)
            first = ProtocolSpawner(world, "ada")
            await first.request(broker)
            await broker.jobs.idle()
        second = ProtocolSpawner(world, "bob")
        assert (await second.request(broker)).lease.state is LeaseState.QUEUED
        world.clock.advance(15)
        await broker.reconciler.once()
        for one in (first, second):
            assert (await one.wait(broker)).type == "granted"


async def test_a_taken_over_lease_keeps_only_the_pools_of_now(tmp_path: Path) -> None:
    """A person who lost a group between two starts must not get that group's devices by the old place."""
    pools = (
        Pool(name="lab", mig=True, gpus=(0,), groups=("lab",)),
        Pool(name="all", mig=True, gpus=(1,)),
    )
    site = Site(pools=pools, policies=Policies(sessions_per_person=50))
    world = BrokerWorld(tmp_path, spec="sim:2xA100-80GB:mig", site=site)
    world.settle_s = 0.1
    world.hub.groups["ada"] = frozenset({"lab"})
    async with world.broker() as broker:
        holders = [ProtocolSpawner(world, "ada", server=str(n), flavor="gpu-40gb") for n in range(4)]
        for holder in holders:
            await holder.run(broker)
        spawner = ProtocolSpawner(world, "ada", flavor="gpu-40gb")
        assert (await spawner.request(broker)).lease.state is LeaseState.QUEUED
        world.hub.groups.clear()
        again = ProtocolSpawner(world, "ada", flavor="gpu-40gb")
        assert (await again.request(broker)).lease.id == spawner.lease
        lab = (await world.agent.inventory()).gpus[0].uuid
        freed = next(one for one in holders if one.reply and one.reply.lease.devices[0].gpu_uuid == lab)
        await freed.stop(broker)
        await world.rounds(broker, 3)
        reply = await again.request(broker)
        assert reply.lease.state is LeaseState.QUEUED


async def test_a_key_serves_one_request_of_one_person(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, spec=ONE_MIG)
    async with world.broker() as broker:
        first = ProtocolSpawner(world, "ada", flavor="cpu")
        await first.request(broker)
        for change in ({"user": "bob"}, {"flavor": "gpu-10gb"}, {"server": "other"}):
            with pytest.raises(BadOptions):
                await broker.leases.request(attempt=first.attempt, body=first.body.model_copy(update=change))
        second = ProtocolSpawner(world, "ada", flavor="gpu-10gb")
        await second.request(broker)
        for call in (first.request,):
            with pytest.raises(StaleAttempt):
                await call(broker)


@pytest.mark.parametrize("name", ["a\x00b", "a\nb", "\x7f", "\ud800"])
def test_no_name_holds_what_a_database_or_a_log_cannot(name: str) -> None:
    for field in ("user", "server"):
        with pytest.raises(ValidationError):
            LeaseRequest.model_validate(
                {"user": "ada", "environment": "minimal", "flavor": "cpu", field: name}
            )


async def test_a_waiter_that_comes_and_goes_neither_blocks_nor_loses_anything(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, spec=ONE_MIG)
    world.settle_s = 0.05
    async with world.broker() as broker:
        holders = [ProtocolSpawner(world, f"u{n}") for n in range(7)]
        for holder in holders:
            await holder.run(broker)
        head, tail = ProtocolSpawner(world, "ada"), ProtocolSpawner(world, "bob")
        await head.request(broker)
        await tail.request(broker)
        for _ in range(20):
            stream = broker.leases.watch(lease_id=head.lease, attempt=head.attempt)
            await anext(stream)
            await stream.aclose()  # type: ignore[attr-defined]
        await holders[0].stop(broker)
        await world.rounds(broker, 2)
        assert (await tail.wait(broker)).type == "granted"
        await holders[1].stop(broker)
        await world.rounds(broker, 2)
        assert (await head.wait(broker)).type == "granted"


async def test_a_machine_restart_at_each_state_leaves_nothing(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, spec=ONE_MIG)
    world.settle_s = 0.05
    async with world.broker() as broker:
        active, granted = ProtocolSpawner(world, "ada"), ProtocolSpawner(world, "bob")
        await active.run(broker)
        await granted.request(broker)
        fillers = [ProtocolSpawner(world, f"u{n}") for n in range(5)]
        for filler in fillers:
            await filler.run(broker)
        queued = ProtocolSpawner(world, "cleo")
        await queued.request(broker)
        world.agent.control.reboot()
        world.engine.restart_without_live_restore()
        await world.rounds(broker, 4)
        for one in (active, granted):
            lease = (await broker.leases.get(one.lease)).lease
            assert (lease.state, lease.end_reason) == (LeaseState.ENDED, EndReason.NODE_RESTARTED)
        assert (await queued.wait(broker)).type == "granted"
        assert world.engine.workloads == {}


async def test_a_clock_that_jumps_back_shortens_no_bill_below_zero(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, spec=ONE_MIG)
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.request(broker)
        world.clock.advance(-3600)
        spawner.create()
        await spawner.confirm(broker)
        spawner.start()
        await spawner.activate(broker)
        world.clock.advance(-3600)
        await spawner.stop(broker)
        await world.rounds(broker, 3)
        lease = (await broker.leases.get(spawner.lease)).lease
        times = [lease.granted_at, lease.active_at, lease.stopped_at, lease.ended_at]
        assert None not in times
        assert times == sorted(times)  # type: ignore[type-var]
        assert lease.stopped_at is not None
        assert lease.active_at is not None
        assert lease.stopped_at - lease.active_at >= timedelta(0)


async def test_an_older_attempts_container_never_starts(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path, spec=ONE_MIG)
    async with world.broker() as broker:
        old = ProtocolSpawner(world, "ada")
        await old.request(broker)
        old.create()
        new = ProtocolSpawner(world, "ada", flavor="gpu-20gb")
        await new.request(broker)
        with pytest.raises(Refusal):
            await old.confirm(broker)
        await world.rounds(broker, 3)
        assert world.engine.workloads == {}
