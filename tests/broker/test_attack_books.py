"""Books under attack: clocks that were ahead, names of the platform's own, days and keys used again."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from allotment_hub.broker.factory import Broker
from allotment_hub.broker.services.budget_views import Setting
from allotment_hub.broker.services.corrections import ByHand
from allotment_hub.broker.services.usage import Ask
from allotment_hub.broker.store.homes import HomeRow, put_home
from allotment_hub.broker.store.usage import Wanted
from allotment_hub.prices import Prices
from allotment_hub.site import Limit, Site
from allotment_spawner.core.errors import BadOptions
from allotment_testing.broker_world import BrokerWorld, small_catalog
from allotment_testing.budget_life import OLGA, budget_of, fund, quote_of, run, world_in
from allotment_testing.ledger_world import at, entries_in, priced_world
from allotment_testing.manual_clock import ManualClock

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


@pytest.mark.parametrize("name", ["budget", "limit"])
async def test_nobody_is_called_as_what_ends_their_session(tmp_path: Path, name: str) -> None:
    """People take back the ends that they announced, by their name."""
    world = world_in(tmp_path, {name: "physics"}, site=Site(limits=(Limit(hours=2),)))
    async with world.broker() as broker:
        await fund(broker, "physics", "0.40")
        session = await run(world, broker, name)
        world.clock.advance(3600)
        await broker.budget_watch.round()
        assert len(await broker.notices.of(session.lease)) == 2
        assert await broker.notices.withdraw_stop(session.lease, made_by=name) == 0


async def test_a_key_moves_money_once_whatever_else_it_is_used_for(tmp_path: Path) -> None:
    world = world_in(tmp_path)
    async with world.broker() as broker:
        physics, art, music = [await fund(broker, name, "10") for name in ("physics", "art", "music")]

        async def move(source: str, target: str) -> Decimal:
            reason, key = "For the course.", "one-key"
            return (await broker.budgets.transfer(OLGA, source, target, Decimal(1), reason, key)).left

        assert [await move(physics.id, music.id), await move(physics.id, music.id)] == [9, 9]
        with pytest.raises(BadOptions, match="another request"):
            await move(physics.id, art.id)
        assert await move(art.id, music.id) == 9
        assert await move(music.id, art.id) == 11
        assert [(await budget_of(broker, one)).left for one in (physics, art, music)] == [9, 10, 11]


async def test_sessions_in_another_currency_are_not_added_to_what_runs(tmp_path: Path) -> None:
    world = world_in(tmp_path)
    async with world.broker() as broker:
        await run(world, broker, "ada")
    world.site = world.site.model_copy(update={"currency": "EUR"})
    async with world.broker() as broker:
        await run(world, broker, "ben", flavor="cpu")
        world.clock.advance(3600)
        march = Wanted(at("2026-03-01"), at("2026-04-01"))
        report = await broker.usage.report(Ask(march))
        assert (report.running, report.currency) == (Decimal("0.05"), "EUR")
        assert report.other_currencies == ("credits",)


class RestlessClock(ManualClock):
    """A millisecond later at each look."""

    def __call__(self) -> datetime:
        self.advance(0.001)
        return self.now


async def test_a_price_that_ends_while_it_is_looked_at(tmp_path: Path) -> None:
    nights = {"schedules": [{"name": "night", "from": "20:00", "to": "06:00", "factor": "0"}]}
    catalog = small_catalog().model_copy(update={"prices": Prices.model_validate(nights)})
    world = world_in(tmp_path, {"ada": "physics art"}, catalog=catalog)
    world.clock = RestlessClock()
    async with world.broker() as broker:
        await fund(broker, "physics", "0.01")
        await fund(broker, "art", "0.01")
        prices = set()
        for before in range(60):
            world.clock.now = at("2026-03-02 20:00") - timedelta(milliseconds=before)
            prices.add((await quote_of(broker, "ada", "cpu")).price_per_hour)
        assert prices == {Decimal("0.05"), Decimal(0)}, "it was looked at before and after"


@pytest.mark.parametrize(("by_hand", "stands"), [("0", "0.80"), ("0.50", "0.30"), ("2", "0"), ("6", "0")])
async def test_what_was_given_back_by_hand_is_not_given_back_again(
    tmp_path: Path, by_hand: str, stands: str
) -> None:
    """A clock that was ahead made an entry of 6, of which 5.20 are too much; an operator saw it first."""
    world = world_in(tmp_path)
    async with world.broker() as broker:
        session = await run(world, broker, "ada")
        world.clock.now = at("2026-03-03 08:00")
        await world.rounds(broker, seconds=0)
        assert [entry.amount for entry in await entries_in(broker)] == [6]
        world.clock.now = at("2026-03-02 11:00")
        if Decimal(by_hand):
            back = ByHand("refund", "olga", Decimal(by_hand), "Wrong clock.", "key", lease=session.lease)
            await broker.corrections.make(back)
        await session.stop(broker)
        await world.rounds(broker, 2, seconds=0)
        assert sum(entry.amount for entry in await entries_in(broker)) == Decimal(stands)


async def test_a_hard_budget_that_was_raised_a_hundred_times_still_ends_sessions(tmp_path: Path) -> None:
    world = world_in(tmp_path)
    async with world.broker() as broker:
        budget = await fund(broker, "ada", "0.10", scope="user")
        session = await run(world, broker, "ada")
        world.clock.advance(3600)
        for amount in [0, 9] * 101 + [0]:
            await broker.budgets.set("olga", budget.id, Setting(amount=Decimal(amount), hard=True))
            await broker.budget_watch.round()
        assert len(await broker.notices.of(session.lease)) == 1


async def test_what_was_charged_too_much_comes_back_in_the_month_in_which_it_ends(tmp_path: Path) -> None:
    """From February on, with a clock that was four days ahead in March."""
    world = world_in(tmp_path, {"ada": "physics"})
    world.clock.now = at("2026-02-28 12:00")
    async with world.broker() as broker:
        budget = await fund(broker, "physics", "40")
        session = await run(world, broker, "ada")
        world.clock.now = at("2026-03-05 12:00")
        await world.rounds(broker, seconds=0)
        world.clock.now = at("2026-03-01 12:00")
        await session.stop(broker)
        await world.rounds(broker, 2, seconds=0)
        assert (await budget_of(broker, budget)).used == Decimal("4.80")
