"""Books under attack: clocks that were ahead, names of the platform's own, days and keys used again."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from allotment_hub.broker.factory import Broker
from allotment_hub.broker.store.homes import HomeRow, put_home
from allotment_testing.broker_world import BrokerWorld
from allotment_testing.ledger_world import at, entries_in, priced_world

YEAR = 365 * 24 * 3600
DAY = 24 * 3600


@pytest.fixture
def world(tmp_path: Path) -> BrokerWorld:
    return priced_world(tmp_path, zone="Europe/Berlin", storage_per_gib_hour="0.001")


async def stored_days(broker: Broker) -> list[str]:
    return [entry.key.rpartition(":")[2] for entry in await entries_in(broker)]


async def a_home_and_a_clock_a_year_ahead(world: BrokerWorld, broker: Broker) -> None:
    """The clock is right again afterwards; the entries stay."""
    row = HomeRow(user="ada", state="live", used_bytes=2**30, measured_at=at("2026-03-01 12:00"))
    await broker.store.write("home", lambda tx: put_home(tx.connection, row))
    world.clock.advance(DAY)
    await world.rounds(broker, 2)
    world.clock.advance(YEAR)
    await world.rounds(broker, 4)
    world.clock.advance(-YEAR)
    await world.rounds(broker, 2)
    assert await stored_days(broker) == ["2026-03-02", "2027-02-28", "2027-03-01", "2027-03-02"]


async def test_homes_cost_again_after_a_clock_that_was_a_year_ahead(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        await a_home_and_a_clock_a_year_ahead(world, broker)
        world.clock.advance(2 * DAY)
        await world.rounds(broker, 4)
        assert (await stored_days(broker))[4:] == ["2026-03-03", "2026-03-04"]


async def test_homes_cost_again_also_for_the_next_broker(world: BrokerWorld) -> None:
    async with world.broker() as broker:
        await a_home_and_a_clock_a_year_ahead(world, broker)
    world.clock.advance(2 * DAY)
    async with world.broker() as broker:
        await world.rounds(broker, 4)
        assert (await stored_days(broker))[4:] == ["2026-03-03", "2026-03-04"]
