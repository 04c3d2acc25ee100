"""Who waits, who goes first, and what ends a wait."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from allotment_hub.broker.factory import Broker
from allotment_hub.broker.services.notices import Words
from allotment_spawner.core.errors import EngineUnavailable, StaleAttempt
from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_testing.broker_world import BrokerWorld, until
from allotment_testing.protocol_spawner import ProtocolSpawner


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    return BrokerWorld(tmp_path)


async def fill(world: BrokerWorld, broker: Broker, count: int = 7) -> list[ProtocolSpawner]:
    """`count` sessions of 10 GB; seven fill the card."""
    people = [ProtocolSpawner(world, f"p{number}") for number in range(count)]
    for one in people:
        await one.run(broker)
    return people


async def queue_up(world: BrokerWorld, broker: Broker, user: str, flavor: str) -> ProtocolSpawner:
    spawner = ProtocolSpawner(world, user, flavor=flavor)
    reply = await spawner.request(broker)
    assert reply.lease.state is LeaseState.QUEUED
    return spawner


async def test_seven_slices_then_place_one_and_the_first_that_frees(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        people = await fill(world, broker)
        assert len({one.device for one in people}) == 7
        waiting = ProtocolSpawner(world, "late")
        reply = await waiting.request(broker)
        assert (reply.lease.state, reply.lease.place, reply.launch) == (LeaseState.QUEUED, 1, None)
        assert reply.lease.expected_start is None, "no history: unknown"
        waits = asyncio.ensure_future(waiting.wait(broker))
        await people[3].stop(broker)
        await world.rounds(broker, 2)
        event = await waits
        assert event.type == "granted"
        assert waiting.device == people[3].device, "the idle slice is used as it is"


async def test_first_come_first_served_and_only_what_cannot_delay_passes(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        people = await fill(world, broker)
        big = await queue_up(world, broker, "big", "gpu-40gb")
        small = await queue_up(world, broker, "small", "gpu-10gb")
        assert (await broker.leases.get(small.lease)).lease.place == 2
        waits = [asyncio.ensure_future(one.wait(broker)) for one in (big, small)]
        whole = ProtocolSpawner(world, "other", flavor="gpu-full")
        assert (await whole.request(broker)).lease.state is LeaseState.GRANTED, "another pool"
        await people[0].stop(broker)
        await world.rounds(broker, 2)
        assert not any(task.done() for task in waits), "one slice is free, but the head needs four"
        for one in people[1:]:
            await one.stop(broker)
        await world.rounds(broker, 2)
        events = await asyncio.gather(*waits)
        assert [event.type for event in events] == ["granted", "granted"]
        assert big.reply is not None
        assert big.reply.lease.devices[0].profile == "3g.40gb"


async def test_a_grant_goes_only_to_a_connected_waiter_who_keeps_the_place(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        people = await fill(world, broker)
        away = await queue_up(world, broker, "away", "gpu-10gb")
        here = await queue_up(world, broker, "here", "gpu-10gb")
        waits = asyncio.ensure_future(here.wait(broker))
        await people[0].stop(broker)
        await world.rounds(broker, 2)
        assert (await waits).type == "granted"
        assert (await broker.leases.get(away.lease)).lease.place == 1
        await people[1].stop(broker)
        await world.rounds(broker, 2)
        assert (await away.wait(broker)).type == "granted"


async def test_a_vanished_waiter_is_abandoned_after_its_time(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        await fill(world, broker)
        away = await queue_up(world, broker, "away", "gpu-10gb")
        keep = world.site.policies.keep_place_s
        await world.rounds(broker, 1, seconds=keep - 2)
        assert (await broker.leases.get(away.lease)).lease.state is LeaseState.QUEUED
        await world.rounds(broker, 1, seconds=4)
        lease = (await broker.leases.get(away.lease)).lease
        assert (lease.state, lease.end_reason) == (LeaseState.ENDED, EndReason.ABANDONED)


async def test_the_wait_limit_ends_in_a_refusal_that_can_be_read(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        await fill(world, broker)
        waiting = await queue_up(world, broker, "ada", "gpu-10gb")
        waits = asyncio.ensure_future(waiting.wait(broker))
        await asyncio.sleep(0)
        await world.rounds(broker, 1, seconds=world.site.policies.wait_limit_s + 1)
        assert (await waits).type == "ended"
        found = await broker.leases.find(user="ada", server="", live=False, limit=5)
        assert [lease.end_reason for lease in found] == [EndReason.WAIT_LIMIT]
        reply = await broker.leases.get(waiting.lease)
        assert reply.refusal is not None
        assert reply.refusal.code == "wait_too_long"


async def test_cancel_of_a_waiting_lease_ends_it_at_once(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        await fill(world, broker)
        waiting = await queue_up(world, broker, "ada", "gpu-10gb")
        reply = await broker.leases.release(
            lease_id=waiting.lease, reason=EndReason.CANCELLED, attempt=waiting.attempt
        )
        assert (reply.lease.state, reply.lease.end_reason) == (LeaseState.ENDED, EndReason.CANCELLED)
        again = await broker.leases.release(
            lease_id=waiting.lease, reason=EndReason.STOPPED, attempt=waiting.attempt
        )
        assert again == reply


async def test_a_new_attempt_keeps_the_place_and_the_old_stream_ends(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        await fill(world, broker)
        first = await queue_up(world, broker, "ada", "gpu-10gb")
        await queue_up(world, broker, "bob", "gpu-10gb")
        stream = broker.leases.watch(lease_id=first.lease, attempt=first.attempt)
        assert (await anext(stream)).type == "queued"
        second = await queue_up(world, broker, "ada", "gpu-10gb")
        assert second.lease == first.lease
        assert second.reply is not None
        assert second.reply.lease.place == 1
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        with pytest.raises(StaleAttempt):
            await anext(broker.leases.watch(lease_id=first.lease, attempt=first.attempt))


async def test_waiters_get_five_seconds_to_return_after_a_restart(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        people = await fill(world, broker)
        head = await queue_up(world, broker, "head", "gpu-10gb")
        tail = await queue_up(world, broker, "tail", "gpu-10gb")
        await people[0].stop(broker)
    async with world.broker() as broker:
        waits = asyncio.ensure_future(tail.wait(broker))
        await world.rounds(broker, 2)
        assert not waits.done(), "the head's turn is kept"
        event = await head.wait(broker)
        assert event.type == "granted"
        await people[1].stop(broker)
        await world.rounds(broker, 2)
        assert (await waits).type == "granted"


async def test_after_those_seconds_the_next_one_goes(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        people = await fill(world, broker)
        await queue_up(world, broker, "head", "gpu-10gb")
        tail = await queue_up(world, broker, "tail", "gpu-10gb")
        await people[0].stop(broker)
    async with world.broker() as broker:
        waits = asyncio.ensure_future(tail.wait(broker))
        await world.rounds(broker, 3, seconds=3)
        assert (await waits).type == "granted"


async def test_nothing_is_granted_while_the_agent_is_silent_save_cpu(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        world.agent.stop_answering()
        await world.rounds(broker)
        waiting = await queue_up(world, broker, "ada", "gpu-10gb")
        cpu = ProtocolSpawner(world, "bob", flavor="cpu")
        assert (await cpu.request(broker)).lease.state is LeaseState.GRANTED
        explanation = await broker.explainer.explain(waiting.lease, for_operator=False)
        assert "agent_unavailable" in [rule.rule for rule in explanation.rules]
        world.agent.answer_again()
        waits = asyncio.ensure_future(waiting.wait(broker))
        await world.rounds(broker, 2)
        assert (await waits).type == "granted"


async def test_a_person_is_estimated_from_history(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        for _ in range(2):
            for one in await fill(world, broker):
                world.clock.advance(60)
                await one.stop(broker)
            await world.rounds(broker, 2)
        await fill(world, broker)
        await world.rounds(broker, 1, seconds=61)
        waiting = await queue_up(world, broker, "ada", "gpu-10gb")
        assert waiting.reply is not None
        expected = waiting.reply.lease.expected_start
        assert expected is not None
        assert world.clock.now <= expected.earliest <= expected.latest
        assert expected.latest < world.clock.now + timedelta(seconds=600)
        flavors = {flavor.id: flavor for flavor in await broker.fleet.flavors("bob")}
        assert flavors["gpu-10gb"].expected_wait_s is not None
        assert flavors["gpu-10gb"].free == 0
        assert flavors["cpu"].expected_wait_s == 0.0


async def test_onlookers_see_changes_and_do_not_count_as_waiters(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        people = await fill(world, broker)
        waiting = await queue_up(world, broker, "ada", "gpu-10gb")
        onlooker = broker.leases.watch(lease_id=waiting.lease, attempt=None)
        assert (await anext(onlooker)).type == "queued"
        await people[0].stop(broker)
        await world.rounds(broker, 2)
        assert (await broker.leases.get(waiting.lease)).lease.state is LeaseState.QUEUED
        await waiting.wait(broker)
        assert (await anext(onlooker)).type == "granted"
        await broker.leases.release(lease_id=waiting.lease, reason=EndReason.CANCELLED, attempt=None)
        assert (await anext(onlooker)).type == "ended"
        with pytest.raises(StopAsyncIteration):
            await anext(onlooker)


async def test_that_a_session_costs_more_by_now_is_no_event(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        [person] = await fill(world, broker, 1)
        onlooker = broker.leases.watch(lease_id=person.lease, attempt=None)
        first = await anext(onlooker)
        world.clock.advance(60)
        next_one = asyncio.ensure_future(anext(onlooker))
        await broker.notices.tell(person.lease, Words("info", "New cards come."), made_by="root")
        await person.stop(broker)
        later = await asyncio.wait_for(next_one, 5)
        assert first.reply.lease.cost is not None
        assert later.reply.lease.state is not LeaseState.ACTIVE


async def test_changes_are_coalesced(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        versions = broker.changes.subscribe()
        first = await anext(versions)
        await fill(world, broker, 3)
        second = await asyncio.wait_for(anext(versions), 5)
        assert second > first + 3, "many changes, one event"


async def test_an_engine_that_fails_to_answer_delays_grants_only(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        world.engine.silent = True
        await world.rounds(broker)
        with pytest.raises(EngineUnavailable):
            await world.engine.check()
        waiting = await queue_up(world, broker, "ada", "cpu")
        waits = asyncio.ensure_future(waiting.wait(broker))
        world.engine.silent = False
        await world.rounds(broker)
        await until(waits.done)
        assert waits.result().type == "granted"
