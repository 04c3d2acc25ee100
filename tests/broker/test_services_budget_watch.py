"""Running sessions and their money: warnings once, stops with grace, called off when money comes."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

from allotment_hub.broker.factory import Broker
from allotment_hub.broker.services.budget_views import Setting
from allotment_hub.broker.services.notices import Words
from allotment_testing.broker_world import BrokerWorld
from allotment_testing.budget_life import ask, budget_of, fund, notices_of, quote_of, run, world_in


async def look(world: BrokerWorld, broker: Broker, hours: float) -> None:
    """Time passes, and the watch has looked."""
    world.clock.advance(hours * 3600)
    await broker.budget_watch.round()


async def test_warned_once_for_each_threshold_and_period_whatever_restarts(tmp_path: Path) -> None:
    world = world_in(tmp_path, {"ada": "physics", "bob": "physics"})
    async with world.broker() as broker:
        await fund(broker, "physics", "10")
        ada = await run(world, broker, "ada")
        second = await run(world, broker, "ada", server="second", flavor="cpu")
        await look(world, broker, 17)
        assert await notices_of(broker, ada.lease) == []
        await look(world, broker, 1)
        told = "80 % of the budget of physics is used: 1.90 credits are left."
        assert await notices_of(broker, ada.lease) == [told]
        assert await notices_of(broker, second.lease) == [told]
        await broker.budget_watch.round()
    async with world.broker() as broker:
        await look(world, broker, 1)
        assert len(await notices_of(broker, ada.lease)) == 1
        bob = await run(world, broker, "bob", flavor="cpu")
        await look(world, broker, 0.1)
        assert len(await notices_of(broker, bob.lease)) == 1, "each person is told"
        await look(world, broker, 2.3)
        assert (await notices_of(broker, ada.lease))[1:] == [
            "95 % of the budget of physics is used: 0.25 credits are left."
        ]
    async with world.broker() as broker:
        await look(world, broker, 0.1)
        assert [len(await notices_of(broker, one.lease)) for one in (ada, second, bob)] == [2, 2, 2]


async def test_a_soft_budget_warns_and_stops_nothing(tmp_path: Path) -> None:
    world = world_in(tmp_path)
    async with world.broker() as broker:
        await fund(broker, "ada", "0.4", scope="user", hard=False)
        session = await run(world, broker, "ada")
        await look(world, broker, 3)
        assert await notices_of(broker, session.lease) == ["100 % of your budget is used: nothing is left."]
        await look(world, broker, 1)
        assert len(await notices_of(broker, session.lease)) == 1
        await ask(broker, "ada", server="another")
        await world.rounds(broker, 2)
        assert world.hub.stop_requests == []


async def test_a_hard_budget_that_is_used_up_ends_sessions_after_the_grace(tmp_path: Path) -> None:
    world = world_in(tmp_path, {"ada": "physics", "eve": ""})
    async with world.broker() as broker:
        await fund(broker, "physics", "0.4")
        session = await run(world, broker, "ada")
        free = await run(world, broker, "eve", flavor="cpu")
        await look(world, broker, 1)
        notices = await broker.notices.of(session.lease)
        assert notices[-1].sentence == "The budget of physics is used up."
        assert notices[-1].stop_at == world.clock() + timedelta(minutes=10)
        assert await notices_of(broker, free.lease) == []
        await world.rounds(broker, 2)
        assert world.hub.stop_requests == []
    async with world.broker() as broker:
        await look(world, broker, 0.1)
        assert len(await notices_of(broker, session.lease)) == 1, "not announced twice"
        world.clock.advance(300)
        await world.rounds(broker, 2)
        assert set(world.hub.stop_requests) == {("ada", "")}


async def test_a_budget_raised_while_the_stop_is_announced(tmp_path: Path) -> None:
    world = world_in(tmp_path, {"ada": "physics"})
    async with world.broker() as broker:
        budget = await fund(broker, "physics", "0.4")
        session = await run(world, broker, "ada")
        await broker.notices.announce_stop(session.lease, _words(), after_s=86400, made_by="olga")
        await look(world, broker, 1.05)
        assert len(await notices_of(broker, session.lease)) == 2
        await broker.budgets.change("olga", budget.id, Decimal(1), "A little more.", None)
        await look(world, broker, 0)
        left = await broker.notices.of(session.lease)
        assert [one.sentence for one in left] == ["The house closes."], "an operator's own stays"
        world.clock.advance(700)
        await world.rounds(broker, 2)
        assert world.hub.stop_requests == []
        await broker.budgets.set("olga", budget.id, Setting(amount=Decimal(0), hard=True))
        await look(world, broker, 1.5)
        assert len(await notices_of(broker, session.lease)) == 2
        await broker.budgets.set("olga", budget.id, Setting(amount=Decimal(0), hard=False))
        await look(world, broker, 0)
        ends = [one.stop_at for one in await broker.notices.of(session.lease) if one.stop_at is not None]
        assert len(ends) == 1


async def test_a_closed_budget_stops_nobody(tmp_path: Path) -> None:
    world = world_in(tmp_path, {"ada": "physics"})
    async with world.broker() as broker:
        budget = await fund(broker, "physics", "0.4")
        session = await run(world, broker, "ada")
        await look(world, broker, 1)
        assert len(await notices_of(broker, session.lease)) == 1
        await broker.budgets.close("olga", budget.id, "The project is over.")
        await look(world, broker, 0)
        assert await notices_of(broker, session.lease) == []


async def test_a_new_period_brings_money_again(tmp_path: Path) -> None:
    """Monday 09:00 to the next Monday's midnight: 159 hours."""
    world = world_in(tmp_path, {"ada": "physics"})
    async with world.broker() as broker:
        budget = await fund(broker, "physics", "60", period="week")
        session = await run(world, broker, "ada")
        await look(world, broker, 150)
        assert (await notices_of(broker, session.lease))[-1].startswith("The budget of physics is used up")
        await look(world, broker, 8.999)
        assert len(await notices_of(broker, session.lease)) == 1
        await look(world, broker, -158.999 + 159)
        # what was used before midnight is in no entry yet, and counts for the old week all the same
        assert await notices_of(broker, session.lease) == []
        await look(world, broker, 1)
        assert (await budget_of(broker, budget)).used == Decimal("0.4")
        await world.rounds(broker, 3)
        assert (await budget_of(broker, budget)).used == Decimal("0.400333")
        await look(world, broker, 130)
        [warned] = await notices_of(broker, session.lease)
        assert warned.startswith("80 % of the budget of physics"), "and it is told anew"


async def test_a_clock_that_is_set_back_costs_nothing_and_stops_nobody(tmp_path: Path) -> None:
    world = world_in(tmp_path, {"ada": "physics"})
    async with world.broker() as broker:
        budget = await fund(broker, "physics", "1")
        session = await run(world, broker, "ada")
        await look(world, broker, 1)
        await look(world, broker, -40 * 24)
        assert (await budget_of(broker, budget)).used == 0
        assert (await quote_of(broker, "ada")).refusal is None
        assert await notices_of(broker, session.lease) == []
        await look(world, broker, 40 * 24 + 1)
        assert (await budget_of(broker, budget)).used == Decimal("0.8")


def _words() -> Words:
    return Words("info", "The house closes.")
