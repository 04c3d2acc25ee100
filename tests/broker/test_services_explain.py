"""What an explanation proposes, and what the broker forgets of waiters."""

from __future__ import annotations

import asyncio
from pathlib import Path

from allotment_testing.broker_world import BrokerWorld, small_catalog, until
from allotment_testing.budget_life import fund, run, world_in
from allotment_testing.protocol_spawner import ProtocolSpawner


async def test_only_what_this_person_may_have_is_proposed(tmp_path: Path) -> None:
    catalog = small_catalog()
    flavors = dict(catalog.flavors)
    flavors["gpu-full"] = flavors["gpu-full"].model_copy(update={"groups": ("staff",)})
    flavors["cpu"] = flavors["cpu"].model_copy(update={"environments": ("pytorch",)})
    world = BrokerWorld(tmp_path, catalog=catalog.model_copy(update={"flavors": flavors}))
    world.hub.groups = {"sue": frozenset({"staff"})}
    async with world.broker() as broker:
        for number in range(7):
            await ProtocolSpawner(world, f"p{number}").run(broker)

        async def proposed(user: str) -> tuple[str, ...]:
            waiting = ProtocolSpawner(world, user)
            await waiting.request(broker)
            return (await broker.explainer.explain(waiting.lease, for_operator=False)).help

        assert await proposed("ann") == (), (
            "the whole card is for staff, and CPU goes with another environment"
        )
        assert await proposed("sue") == ("Whole GPU could start now.",)
        lease = (await broker.leases.find(user="sue", server=None, live=True, limit=1))[0].id
        world.hub.away = True
        assert (await broker.explainer.explain(lease, for_operator=False)).help == ()


async def test_a_waiter_who_hangs_up_after_the_end_is_forgotten(tmp_path: Path) -> None:
    world = BrokerWorld(tmp_path)
    async with world.broker() as broker:
        for number in range(7):
            await ProtocolSpawner(world, f"p{number}").run(broker)
        waiting = ProtocolSpawner(world, "late")
        await waiting.request(broker)
        waits = asyncio.ensure_future(waiting.wait(broker))
        await until(lambda: broker.scheduler._waiters.is_connected(waiting.lease))
        await waiting.stop(broker)
        await waits
        await until(lambda: not broker.scheduler._waiters.is_connected(waiting.lease))
        await world.rounds(broker)
        assert waiting.lease not in broker.scheduler._waiters._left


async def test_who_comes_back_reads_what_stopped_the_session(tmp_path: Path) -> None:
    world = world_in(tmp_path, {"ada": "physics", "bob": "physics"})
    async with world.broker() as broker:
        await fund(broker, "physics", "0.8")
        ended, went = await run(world, broker, "ada"), await run(world, broker, "bob")
        world.clock.advance(3600)
        await broker.budget_watch.round()
        await went.stop(broker)
        world.clock.advance(601)
        await world.rounds(broker, 2)
        assert set(world.hub.stop_requests) == {("ada", "")}
        await ended.stop(broker)
        await world.rounds(broker, 2)
        told = await broker.explainer.explain(ended.lease, for_operator=False)
        assert told.sentence == ("It was stopped, as announced: The budget of physics is used up.")
        assert [rule.rule for rule in told.rules] == ["stopped", "announced"]
        told = await broker.explainer.explain(went.lease, for_operator=False)
        assert told.sentence == "It was stopped.", "before the announced end, by its owner"
