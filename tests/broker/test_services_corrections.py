"""Entries by hand and for homes, with real services."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from allotment_hub.broker.factory import Broker
from allotment_hub.broker.services.corrections import ByHand
from allotment_hub.broker.store.homes import HomeRow, put_home
from allotment_spawner.core.errors import BadOptions, NoSuchEntry, NoSuchLease
from allotment_testing.broker_world import BrokerWorld
from allotment_testing.ledger_world import at, entries_in, priced_world
from allotment_testing.protocol_spawner import ProtocolSpawner

D = Decimal
HOUR = 3600
GIB = 2**30


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    return priced_world(tmp_path, zone="Europe/Berlin", storage_per_gib_hour="0.001")


@pytest.fixture
async def broker(world: BrokerWorld) -> AsyncIterator[Broker]:
    async with world.broker() as running:
        yield running


async def an_hour(world: BrokerWorld, broker: Broker, user: str = "ada") -> str:
    """A session that cost 0.40; its lease."""
    spawner = ProtocolSpawner(world, user)
    await spawner.run(broker)
    world.clock.advance(HOUR)
    await spawner.stop(broker)
    await world.rounds(broker, seconds=0)
    return spawner.lease


def refund(given_back: str, **changes: Any) -> ByHand:
    told = ByHand("refund", "root", D(given_back), "The course was cancelled.", f"key-{given_back}")
    return replace(told, **changes)


async def test_a_refund_is_an_entry_of_its_own(world: BrokerWorld, broker: Broker) -> None:
    lease = await an_hour(world, broker)
    world.clock.advance(40 * 24 * HOUR)
    made = await broker.corrections.make(refund("0.15", lease=lease))
    used, back = await entries_in(broker)
    assert (made.kind, made.amount, made.owner, made.reason) == (
        "refund",
        D("-0.15"),
        "ada",
        "The course was cancelled.",
    )
    assert (back.id, back.refers_to, back.made_by) == (made.id, used.id, "root")
    assert (back.from_at, back.to_at) == (used.from_at, used.to_at), "of the month in which it was used"
    assert (back.flavor, back.seconds, back.key) == ("gpu-10gb", D(0), "manual:key-0.15")
    assert (await broker.leases.get(lease)).lease.cost == D("0.40"), "what it cost, without what came back"


async def test_the_same_key_is_the_same_entry(world: BrokerWorld, broker: Broker) -> None:
    lease = await an_hour(world, broker)
    first = await broker.corrections.make(refund("0.30", lease=lease))
    assert await broker.corrections.make(refund("0.30", lease=lease)) == first
    with pytest.raises(BadOptions, match="another entry"):
        await broker.corrections.make(refund("0.10", lease=lease, key="key-0.30"))
    assert len(await entries_in(broker)) == 2


async def test_never_more_than_was_charged(world: BrokerWorld, broker: Broker) -> None:
    lease = await an_hour(world, broker)
    [used] = await entries_in(broker)
    with pytest.raises(BadOptions, match=r"Only 0\.400000 credits"):
        await broker.corrections.make(refund("0.41", lease=lease))
    await broker.corrections.make(refund("0.3", lease=lease))
    with pytest.raises(BadOptions, match=r"Only 0\.100000 credits"):
        await broker.corrections.make(refund("0.2", entry=used.id))
    await broker.corrections.make(ByHand("correction", "root", D("0.50"), "It was more.", "c", lease=lease))
    await broker.corrections.make(ByHand("correction", "root", D("-0.6"), "All of it.", "d", lease=lease))
    assert sum(entry.amount for entry in await entries_in(broker)) == 0


async def test_a_session_that_runs_is_not_charged_yet(world: BrokerWorld, broker: Broker) -> None:
    spawner = ProtocolSpawner(world, "ada")
    await spawner.run(broker)
    world.clock.advance(HOUR)
    with pytest.raises(BadOptions, match=r"Only 0\S* credits"):
        await broker.corrections.make(refund("0.1", lease=spawner.lease))
    made = await broker.corrections.make(
        ByHand("correction", "root", D(1), "A tool that it used.", "c", lease=spawner.lease)
    )
    assert (made.from_, made.refers_to) == (world.clock.now, None)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"amount": D(0)}, BadOptions),
        ({"amount": D(-1)}, BadOptions),
        ({"amount": D("NaN")}, BadOptions),
        ({"amount": D("Infinity")}, BadOptions),
        ({"amount": D("0.0000001")}, BadOptions),
        ({"amount": D("1e10")}, BadOptions),
        ({"reason": ""}, BadOptions),
        ({"reason": "  "}, BadOptions),
        ({"reason": "a\nb"}, BadOptions),
        ({"reason": "x" * 501}, BadOptions),
        ({"entry": "e"}, BadOptions),
        ({"lease": None}, BadOptions),
        ({"lease": "nobody"}, NoSuchLease),
        ({"lease": None, "entry": "nothing"}, NoSuchEntry),
    ],
)
async def test_what_is_refused(
    world: BrokerWorld, broker: Broker, changes: dict[str, Any], error: type[Exception]
) -> None:
    lease = await an_hour(world, broker)
    with pytest.raises(error):
        await broker.corrections.make(refund("0.1", **{"lease": lease, **changes}))
    assert len(await entries_in(broker)) == 1


async def measured(broker: Broker, user: str, used_bytes: int | None, when: str, state: str = "live") -> None:
    row = HomeRow(user=user, state=state, used_bytes=used_bytes, measured_at=at(when))  # type: ignore[arg-type]
    await broker.store.write("home", lambda tx: put_home(tx.connection, row))


async def test_measured_homes_cost_by_the_day(world: BrokerWorld) -> None:
    world.clock.now = at("2026-03-28 12:00")
    async with world.broker() as broker:
        await measure_homes(world, broker)


async def measure_homes(world: BrokerWorld, broker: Broker) -> None:
    await measured(broker, "ada", 10 * GIB, "2026-03-01 12:00")
    await measured(broker, "ben", None, "2026-03-01 12:00")
    await measured(broker, "cleo", GIB, "2026-03-29 12:00")
    await measured(broker, "dora", 9 * GIB, "2026-03-01 12:00", "archived")
    await measured(broker, "eve", 0, "2026-03-01 12:00")
    await world.rounds(broker, 3)
    assert await entries_in(broker) == [], "the day is not over"
    world.clock.now = at("2026-03-28 23:00")
    await world.rounds(broker, 3, seconds=0)
    [first] = await entries_in(broker)
    assert (first.kind, first.owner, first.volume, first.lease) == ("storage", "ada", "home", None)
    assert (first.key, first.amount) == ("storage:ada:home:2026-03-28", D("0.24"))
    world.clock.now = at("2026-03-29 22:00")
    await world.rounds(broker, seconds=0)
    spring = [entry for entry in await entries_in(broker) if entry.key.endswith("03-29")]
    assert {entry.owner: entry.amount for entry in spring} == {"ada": D("0.23"), "cleo": D("0.023")}


async def test_days_without_a_broker_are_made_up_for_once(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        await measured(broker, "ada", GIB, "2026-03-01 12:00")
        world.clock.now = at("2026-03-03 12:00")
        await world.rounds(broker, 2)
    for _ in range(2):
        world.clock.advance(36 * HOUR)
        async with world.broker() as broker:
            await world.rounds(broker, 4)
            days = [entry.key[-2:] for entry in await entries_in(broker)]
    assert days == ["02", "03", "04", "05"]


async def test_a_home_can_be_given_back_once(world: BrokerWorld, broker: Broker) -> None:
    await measured(broker, "ada", 10 * GIB, "2026-03-01 12:00")
    world.clock.advance(timedelta(days=1).total_seconds())
    await world.rounds(broker, 2)
    [stored] = await entries_in(broker)
    corrected = await broker.corrections.make(
        ByHand("correction", "root", D("0.10"), "It was fuller.", "a", entry=stored.id)
    )
    await broker.corrections.make(refund("0.34", entry=corrected.id))
    with pytest.raises(BadOptions, match="Only 0"):
        await broker.corrections.make(refund("0.01", entry=stored.id))
