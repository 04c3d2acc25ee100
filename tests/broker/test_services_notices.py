"""What sessions are told, kept over crashes; announced ends that come; last calls that wait for nobody."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from allotment_hub.broker.factory import Broker
from allotment_hub.broker.services.announced import AnnouncedStops
from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.notices import Event, Words
from allotment_spawner.core.errors import NoSuchLease, WrongState
from allotment_spawner.core.lease import EndReason
from allotment_spawner.wire import LeaseRequest
from allotment_testing.broker_world import BrokerWorld, until
from allotment_testing.crashes import Crash, CrashPoint
from allotment_testing.protocol_spawner import ProtocolSpawner

STEPS = ("tell.before", "tell.commit", "tell.after", "announced.before", "announced.after")
HELLO = Words("info", "The machine is restarted at six.", "Save what you need.")


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    return BrokerWorld(tmp_path)


async def running(world: BrokerWorld, broker: Broker) -> str:
    """The id of a session of ann's that runs."""
    return (await ProtocolSpawner(world, "ann", flavor="cpu").run(broker)).lease.id


async def test_a_listener_sees_what_was_said_before_and_what_comes(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        lease = await running(world, broker)
        await broker.notices.tell(lease, HELLO, made_by="olga")
        seen: list[Event] = []

        async def listen() -> None:
            async for event in broker.notices.watch(lease):
                seen.append(event)  # noqa: PERF401 - looked at meanwhile

        listening = asyncio.ensure_future(listen())
        await until(lambda: len(seen) == 1)
        await broker.notices.tell_all(Words("error", "The disk is full."), made_by="olga")
        await until(lambda: len(seen) == 2)
        await broker.leases.release(lease_id=lease, reason=EndReason.STOPPED, attempt=None)
        await world.rounds(broker, 3)
        await asyncio.wait_for(listening, 5)
    assert [name for name, _ in seen] == ["notices", "notice"]
    assert [one["sentence"] for one in seen[0][1]["list"]] == [HELLO.sentence]
    assert seen[1][1]["sentence"] == "The disk is full."
    assert "made_by" not in seen[1][1], "people need not know which operator"


async def test_everybody_is_only_who_runs(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        await running(world, broker)
        waiting = [
            await broker.leases.request(
                attempt=uuid4().hex, body=LeaseRequest(user=user, environment="minimal", flavor="gpu-full")
            )
            for user in ("ben", "cleo")
        ]
        told = await broker.notices.tell_all(HELLO, made_by="olga")
        assert told == 2, "one runs, one is being started, one waits"
        with pytest.raises(WrongState):
            await broker.notices.tell(waiting[1].lease.id, HELLO, made_by="olga")
        with pytest.raises(NoSuchLease):
            await broker.notices.tell("unknown", HELLO, made_by="olga")


async def test_an_announced_end_comes_also_after_a_crash(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        first = ProtocolSpawner(world, "ann", flavor="cpu")
        lease = (await first.run(broker)).lease.id
        await broker.notices.announce_stop(lease, HELLO, after_s=600, made_by="olga")
        await world.rounds(broker, 2)
        assert world.hub.stop_requests == []
    world.clock.advance(700)
    world.hub.away = True
    async with world.broker() as broker:
        await world.rounds(broker, 2)
        assert world.hub.stop_requests == [], "the hub was away"
        world.hub.away = False
        await world.rounds(broker, 1)
        assert world.hub.stop_requests[0] == ("ann", "")
        await first.stop(broker)
        world.hub.stop_requests.clear()
        again = await running(world, broker)
        await world.rounds(broker, 3)
        assert world.hub.stop_requests == [], "the next session of that server has done nothing"
        assert (await broker.leases.get(again)).lease.state == "active"


@pytest.mark.parametrize("step", range(5))
async def test_an_announced_end_survives_death_at_every_step(world: BrokerWorld, step: int) -> None:
    """Either nobody was answered and nothing comes, or it comes once the broker is back."""
    async with world.broker() as broker:
        first = ProtocolSpawner(world, "ann", flavor="cpu")
        lease = (await first.run(broker)).lease.id
    point, answered = CrashPoint(), False
    dying = world.build(on_step=point)
    await dying.start()
    point.arm(step)
    try:
        await dying.notices.announce_stop(lease, HELLO, after_s=0, made_by="olga")
        answered = True
        await world.rounds(dying, 1)
    except Crash:
        pass
    await dying.store.close()
    assert point.died_at == STEPS[step]
    async with world.broker() as broker:
        kept = lease in broker.notices.stops
        assert kept or not answered
        await world.rounds(broker, 2)
        assert bool(world.hub.stop_requests) is kept
        await first.stop(broker)
        await world.rounds(broker, 2)
        assert broker.notices.stops == {}
        assert broker.notices.stopping == set()


async def test_the_earliest_of_several_ends_counts_until_it_is_withdrawn(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        lease = await running(world, broker)
        await broker.notices.announce_stop(lease, HELLO, after_s=60, made_by="olga")
        await broker.notices.announce_stop(lease, HELLO, after_s=600, made_by="ann")
        assert await broker.notices.withdraw_stop(lease, made_by="ann") == 1
        assert broker.notices.stops[lease] == world.clock() + timedelta(seconds=60)
        await broker.notices.announce_stop(lease, HELLO, after_s=600, made_by="ann")
        assert await broker.notices.withdraw_stop(lease, made_by="olga") == 1
        assert broker.notices.stops[lease] == world.clock() + timedelta(seconds=600)
        assert await broker.notices.withdraw_stop(lease, made_by=None) == 1
        assert await broker.notices.withdraw_stop(lease, made_by=None) == 0
        await world.rounds(broker, 2, seconds=700)
    assert world.hub.stop_requests == []


async def test_an_end_is_not_forgotten_for_all_that_was_said_since(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        lease = await running(world, broker)
        await broker.notices.announce_stop(lease, HELLO, after_s=600, made_by="olga")
        for _ in range(51):
            await broker.notices.tell(lease, HELLO, made_by="olga")
        assert await broker.notices.withdraw_stop(lease, made_by="ann") == 0
        await world.rounds(broker, 2, seconds=700)
    assert world.hub.stop_requests[:1] == [("ann", "")]


async def test_an_end_that_is_called_off_before_the_hub_is_asked_does_not_come(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        lease = await running(world, broker)
        await broker.notices.announce_stop(lease, HELLO, after_s=0, made_by="ann")
        book = Book()
        book.apply(await broker.store.read(lambda tx: tx.unended()))
        stops = AnnouncedStops(
            notices=broker.notices, book=book, hub=world.hub, jobs=broker.jobs,
            clock=world.clock, on_step=lambda _step: None,
        )  # fmt: skip
        await stops.round()
        # its job is made, and has not had its turn
        del broker.notices.stops[lease]
        await broker.jobs.idle()
    assert world.hub.stop_requests == []


async def test_nobody_is_told_that_a_session_goes_on_which_the_hub_is_stopping(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        lease = await running(world, broker)
        await broker.notices.announce_stop(lease, HELLO, after_s=0, made_by="ann")
        world.hub.away = True
        await world.rounds(broker, 1)
        assert await broker.notices.withdraw_stop(lease, made_by="ann") == 1, "the hub was never reached"
        world.hub.away = False
        await broker.notices.announce_stop(lease, HELLO, after_s=0, made_by="ann")
        await world.rounds(broker, 1)
        assert world.hub.stop_requests == [("ann", "")]
        with pytest.raises(WrongState):
            await broker.notices.withdraw_stop(lease, made_by="ann")
        await broker.leases.release(lease_id=lease, reason=EndReason.STOPPED, attempt=None)
        await world.rounds(broker, 3)
        assert broker.notices.stopping == set()


async def test_nobody_fills_the_table(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        lease = await running(world, broker)
        for _ in range(100):
            await broker.notices.announce_stop(lease, HELLO, after_s=600, made_by="ann")
            await broker.notices.withdraw_stop(lease, made_by="ann")
        with pytest.raises(WrongState, match="100 times"):
            await broker.notices.announce_stop(lease, HELLO, after_s=600, made_by="ann")
        await broker.notices.announce_stop(lease, HELLO, after_s=600, made_by="olga")


async def test_an_answer_of_the_database_that_was_lost_is_read_again(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        lease = await running(world, broker)
        await broker.notices.announce_stop(lease, HELLO, after_s=0, made_by="olga")
        broker.notices.stops.clear()
        broker.notices.unsure = True
        await world.rounds(broker, 1)
    assert world.hub.stop_requests == [("ann", "")]


async def test_a_last_call_waits_for_nobody_where_nobody_listens(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        lease = await running(world, broker)
        async with asyncio.timeout(1):
            told = await broker.last_calls.call(lease, wait_s=30)
    assert (told.listeners, told.answered) == (0, 0)


async def test_a_last_call_ends_with_the_last_answer(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        lease = await running(world, broker)
        events = broker.notices.watch(lease)
        assert (await anext(events))[0] == "notices"
        with broker.last_calls.listening(lease), broker.last_calls.listening(lease):
            calling = asyncio.ensure_future(broker.last_calls.call(lease, wait_s=30))
            name, data = await asyncio.wait_for(anext(events), 5)
            assert name == "last_call"
            broker.last_calls.answer(lease, "0" * 32, saved=9, failed=9)
            broker.last_calls.answer(lease, data["id"], saved=2, failed=0)
            assert not calling.done(), "one of two"
            broker.last_calls.answer(lease, data["id"], saved=1, failed=1)
            told = await asyncio.wait_for(calling, 5)
    assert (told.listeners, told.answered, told.saved, told.failed) == (2, 2, 3, 1)


async def test_a_listener_that_leaves_is_not_waited_for(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        lease = await running(world, broker)
        with broker.last_calls.listening(lease):
            calling = asyncio.ensure_future(broker.last_calls.call(lease, wait_s=30))
            await asyncio.sleep(0)
        told = await asyncio.wait_for(calling, 5)
    assert (told.listeners, told.answered) == (1, 0)


async def test_a_silent_listener_costs_the_wait_and_no_more(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        lease = await running(world, broker)
        with broker.last_calls.listening(lease):
            async with asyncio.timeout(5):
                told = await broker.last_calls.call(lease, wait_s=0.05)
    assert (told.listeners, told.answered) == (1, 0)
