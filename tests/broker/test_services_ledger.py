"""What sessions cost, from their grant to their last entry, with real services over a simulated machine."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from allotment_hub.broker.factory import Broker
from allotment_hub.broker.services.corrections import ByHand
from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_spawner.wire import LeaseView
from allotment_testing.broker_world import BrokerWorld
from allotment_testing.ledger_world import at, entries_in, priced_world
from allotment_testing.protocol_spawner import ProtocolSpawner

HOUR = 3600
NIGHT = {"name": "night", "from": "22:00", "to": "06:00", "factor": "0.5"}
D = Decimal


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    return priced_world(tmp_path, zone="Europe/Berlin", schedules=[NIGHT])


async def view_of(broker: Broker, spawner: ProtocolSpawner) -> LeaseView:
    return (await broker.leases.get(spawner.lease)).lease


async def ended(world: BrokerWorld, broker: Broker, spawner: ProtocolSpawner) -> LeaseView:
    """Stopped now, and all entries made."""
    await spawner.stop(broker)
    await world.rounds(broker, seconds=0)
    view = await view_of(broker, spawner)
    assert view.state is LeaseState.ENDED
    return view


async def test_an_hour_costs_an_hour_and_waiting_nothing(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.request(broker)
        spawner.create()
        world.clock.advance(10)
        await spawner.confirm(broker)
        spawner.start()
        await spawner.activate(broker)
        assert (await view_of(broker, spawner)).cost == 0
        await world.rounds(broker, 2, seconds=HOUR / 2)
        running = await view_of(broker, spawner)
        assert (running.cost, running.currency) == (D("0.40"), "credits")
        assert await entries_in(broker) == []
        over = await ended(world, broker, spawner)
        assert over.cost == D("0.40")
        [entry] = await entries_in(broker)
    assert (entry.kind, entry.owner, entry.lease) == ("usage", "ada", spawner.lease)
    assert (entry.amount, entry.seconds, entry.gpu_seconds) == (D("0.40"), D(HOUR), D(450))
    assert (entry.from_at, entry.to_at) == (over.active_at, over.stopped_at)
    assert (entry.flavor, entry.environment, entry.queue_class) == ("gpu-10gb", "minimal", "interactive")
    assert entry.key == f"lease:{spawner.lease}:2026-03-02"
    async with world.broker() as broker:
        assert (await view_of(broker, spawner)).cost == D("0.40"), "also of one that ended long ago"


async def test_a_session_over_night_is_posted_by_days_at_the_rates_of_its_grant(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada", flavor="gpu-full")
        reply = await spawner.run(broker)
        assert reply.lease.price_per_hour == D("3.20")
        world.clock.now = at("2026-03-02 22:59:59")
        await world.rounds(broker, seconds=0)
        assert await entries_in(broker) == []
        await world.rounds(broker, 2)
        [first] = await entries_in(broker)
    assert (first.from_at, first.to_at) == (at("2026-03-02 09:00"), at("2026-03-02 23:00"))
    assert first.amount == 12 * D("3.20") + 2 * D("1.60")
    world.catalog = world.catalog.model_copy(update={"flavors": cheaper(world)})
    async with world.broker() as broker:
        world.clock.now = at("2026-03-03 06:00")
        over = await ended(world, broker, spawner)
        _, last = await entries_in(broker)
    assert last.key == f"lease:{spawner.lease}:2026-03-03"
    assert last.amount == 6 * D("1.60") + D("3.20")
    assert over.cost == first.amount + last.amount
    assert last.gpu_seconds == last.seconds == 7 * HOUR


def cheaper(world: BrokerWorld) -> dict[str, object]:
    flavor = world.catalog.flavors["gpu-full"].model_copy(update={"price_per_hour": D("0.01")})
    return {**world.catalog.flavors, "gpu-full": flavor}


@pytest.mark.parametrize("down_h", [1, 80])
async def test_a_broker_that_was_away_bills_the_gap_from_the_lease(world: BrokerWorld, down_h: int) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.run(broker)
        world.clock.now = at("2026-03-02 22:30")
        await world.rounds(broker, seconds=0)
    world.clock.advance(down_h * HOUR)
    async with world.broker() as broker:
        days = len(await entries_in(broker))
        assert days == 1 + down_h // 24
        over = await ended(world, broker, spawner)
        found = await entries_in(broker)
    assert over.active_at is not None
    assert over.stopped_at is not None
    assert sum(entry.seconds for entry in found) == D((over.stopped_at - over.active_at).total_seconds())
    assert [entry.from_at for entry in found[1:]] == [entry.to_at for entry in found[:-1]]
    assert sum(entry.amount for entry in found) == over.cost


async def test_the_time_of_a_gpu_that_is_out_of_order_is_free_and_its_holder_is_told(
    world: BrokerWorld,
) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        other = ProtocolSpawner(world, "ben", flavor="gpu-full")
        reply = await spawner.run(broker)
        await other.run(broker)
        gpu = reply.lease.devices[0].gpu_uuid
        world.clock.advance(HOUR)
        world.agent.control.fault(gpu, 48)
        await world.rounds(broker, seconds=0)
        [told] = await broker.notices.of(spawner.lease)
        assert told.sentence.startswith("Your GPU is out of order: ")
        assert re.search(r"[^.]\. Its time is not billed until it works again\.$", told.sentence), (
            told.sentence
        )
        assert await broker.notices.of(other.lease) == []
        await world.rounds(broker, 2, seconds=HOUR)
        assert (await view_of(broker, spawner)).cost == D("0.40")
    async with world.broker() as broker:
        await world.rounds(broker, seconds=HOUR)
        assert len(await broker.notices.of(spawner.lease)) == 1, "nobody is told twice"
        assert (await view_of(broker, spawner)).state is LeaseState.ACTIVE
        world.agent.heal(gpu)
        await world.rounds(broker, seconds=0)
        await world.rounds(broker, seconds=HOUR)
        assert (await ended(world, broker, spawner)).cost == D("0.80")
        assert (await ended(world, broker, other)).cost == 5 * D("3.20")
        [mine, whole] = await entries_in(broker)
    assert (mine.seconds, whole.seconds) == (D(2 * HOUR), D(5 * HOUR))


async def test_while_the_agent_is_silent_no_outage_begins_or_ends(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        gpu = (await spawner.run(broker)).lease.devices[0].gpu_uuid
        world.agent.stop_answering()
        await world.rounds(broker, 2, seconds=HOUR)
        world.agent.answer_again()
        world.agent.control.fault(gpu, 79)
        await world.rounds(broker, seconds=0)
        world.agent.stop_answering()
        await world.rounds(broker, 3, seconds=HOUR)
        assert (await view_of(broker, spawner)).cost == D("0.80")


async def test_what_the_platform_broke_is_given_back_by_rule(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.run(broker)
        world.clock.advance(3 * HOUR)
        world.engine.silent = True
        await world.rounds(broker)
        world.clock.advance(HOUR)
        world.engine.silent = False
        world.engine.restart_without_live_restore()
        await world.rounds(broker, 3)
        view = await view_of(broker, spawner)
        used, back = await entries_in(broker)
    assert view.end_reason is EndReason.ENGINE_STOPPED
    assert used.amount == view.cost == D("1.200111")
    assert (back.kind, back.key, back.amount) == ("refund", f"refund:{spawner.lease}", D("-0.400000"))
    assert (back.seconds, back.gpu_seconds) == (-D(3600), -D(450))
    assert back.to_at == view.stopped_at
    assert "engine" in back.reason


async def test_never_more_is_given_back_than_was_charged(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.run(broker)
        await world.rounds(broker, seconds=600)
        world.agent.control.reboot()
        for ref in list(world.engine.workloads):
            world.engine.exit(ref)
        await world.rounds(broker, 5, seconds=0)
        assert (await view_of(broker, spawner)).end_reason is EndReason.NODE_RESTARTED
        used, back = await entries_in(broker)
    assert used.amount == -back.amount == D("0.066667")


async def test_what_was_given_back_by_hand_is_not_given_back_again(world: BrokerWorld) -> None:
    world.clock.now = at("2026-03-02 22:30")
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.run(broker)
        await world.rounds(broker, seconds=HOUR / 2)
        told = ByHand("refund", "root", D("0.09"), "It was slow.", "key", lease=spawner.lease)
        await broker.corrections.make(told)
        world.clock.advance(HOUR / 5)
        world.engine.silent = True
        await world.rounds(broker, seconds=0)
        world.engine.silent = False
        world.engine.restart_without_live_restore()
        await world.rounds(broker, 3)
        amounts = [entry.amount for entry in await entries_in(broker)]
    assert amounts == [D("0.10"), D("-0.09"), D("0.04"), D("-0.05")]


async def test_nobody_pays_for_a_machine_that_is_off(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.run(broker)
        await world.rounds(broker, 4, seconds=HOUR / 2)
    seen = world.clock.now
    world.agent.control.reboot()
    world.engine.restart_without_live_restore()
    world.clock.advance(9 * HOUR)
    async with world.broker() as broker:
        await world.rounds(broker, 5)
        view = await view_of(broker, spawner)
        used, back = await entries_in(broker)
    assert (view.end_reason, view.stopped_at) == (EndReason.NODE_RESTARTED, seen)
    assert (used.amount, back.amount) == (D("0.80"), D("-0.40"))


@pytest.mark.parametrize("content", ["", "[]", "{", '{"b": 1}', '{"b": "soon"}'])
async def test_a_broken_note_of_when_the_machine_was_seen_is_no_obstacle(
    world: BrokerWorld, content: str
) -> None:
    async with world.broker():
        pass
    file = world.paths.broker_database.with_name("last-seen.json")
    assert file.exists()
    file.write_text(content, encoding="utf-8")
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.run(broker)
        assert (await ended(world, broker, spawner)).end_reason is EndReason.STOPPED


async def test_a_clock_that_is_set_back_makes_no_negative_entry(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        began = world.clock.now
        await spawner.run(broker)
        world.clock.advance(3 * 24 * HOUR)
        await world.rounds(broker)
        assert len(await entries_in(broker)) == 3
        world.clock.now = began + timedelta(hours=1)
        await world.rounds(broker, seconds=0)
        assert (await view_of(broker, spawner)).cost == D("0.40")
        over = await ended(world, broker, spawner)
        *used, back = await entries_in(broker)
    assert all(entry.amount > 0 for entry in used)
    assert (back.kind, back.key) == ("refund", f"outage:{spawner.lease}")
    assert sum(entry.amount for entry in used) + back.amount == over.cost == D("0.40")


async def test_a_session_that_never_ran_costs_nothing(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        spawner = ProtocolSpawner(world, "ada")
        await spawner.request(broker)
        world.clock.advance(HOUR)
        await spawner.stop(broker, EndReason.CANCELLED)
        await world.rounds(broker, 2)
        assert (await view_of(broker, spawner)).cost is None
        assert await entries_in(broker) == []
