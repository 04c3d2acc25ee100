"""Who is charged, what a hard budget refuses, and that two starts at once cannot overdraw it."""

from __future__ import annotations

import asyncio
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from allotment_hub.broker.services.budget_views import Reader, Setting
from allotment_spawner.core.errors import BudgetExhausted, ChargeNotAllowed
from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_spawner.wire import LeaseReply
from allotment_testing.broker_world import small_catalog
from allotment_testing.budget_life import OLGA, ask, budget_of, fund, notices_of, quote_of, run, world_in

# 10 minutes of gpu-10gb cost 0.066667, of cpu 0.008334, rounded up


async def test_a_start_that_cannot_be_paid_is_refused_with_the_sum_that_lacks(tmp_path: Path) -> None:
    async with world_in(tmp_path, {"ada": "physics"}).broker() as broker:
        await fund(broker, "physics", "0.05")
        with pytest.raises(BudgetExhausted) as said:
            await ask(broker, "ada")
        assert said.value.sentence == (
            "The budget of physics lacks 0.016667 credits: 0.05 are left, "
            "and 10 minutes of 10 GB GPU need 0.066667."
        )
        assert said.value.next_step == (
            "Choose a smaller size or ask for more; the next month begins 2026-04-01 00:00 UTC."
        )
        assert (said.value.details["lacks"], said.value.details["budget"]) == ("0.016667", "physics")
        quote = await quote_of(broker, "ada")
        assert quote.refusal is not None
        assert quote.refusal.startswith(said.value.sentence)
        assert (quote.minimum, quote.charge_to) == (Decimal("0.066667"), "physics")
        assert (await ask(broker, "ada", "cpu")).lease.charged_to == "physics"
        [refused] = [
            one
            for one in await broker.leases.find(user="ada", server="", live=False, limit=5)
            if one.state is LeaseState.ENDED
        ]
        assert refused.end_reason is EndReason.REFUSED


async def test_what_runs_already_is_counted(tmp_path: Path) -> None:
    world = world_in(tmp_path, {"ada": "physics", "bob": "physics"})
    async with world.broker() as broker:
        budget = await fund(broker, "physics", "0.14")
        await run(world, broker, "ada")
        with pytest.raises(BudgetExhausted, match=r"beside what runs already need 0.2") as said:
            await ask(broker, "bob", server="a", flavor="gpu-20gb")
        assert said.value.next_step.startswith("Choose a smaller size, stop a session or ask for more; ")
        await run(world, broker, "bob")
        world.clock.advance(360)
        assert (await budget_of(broker, budget)).left == Decimal("0.06")
        with pytest.raises(BudgetExhausted, match=r"lacks 0.081667 credits: 0.06 are left"):
            await ask(broker, "bob", "cpu", server="b")


async def test_no_smaller_size_is_proposed_where_nothing_is_left(tmp_path: Path) -> None:
    async with world_in(tmp_path, {"ada": "physics"}).broker() as broker:
        await fund(broker, "physics", "0")
        with pytest.raises(BudgetExhausted) as said:
            await ask(broker, "ada", "cpu")
        assert said.value.next_step.startswith("Ask for more; the next month begins ")


@pytest.mark.parametrize("count", [2, 8])
async def test_starts_at_once_cannot_overdraw_together(tmp_path: Path, count: int) -> None:
    """Enough for one; each could be paid alone. Two people of one group, two servers of one person."""
    world = world_in(tmp_path, {f"user{number}": "physics" for number in range(count)})
    async with world.broker() as broker:
        await fund(broker, "physics", "0.07")
        asked = [ask(broker, f"user{number}") for number in range(count)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(one, LeaseReply) for one in found) == 1
        assert sum(isinstance(one, BudgetExhausted) for one in found) == count - 1
        await fund(broker, "*", "0.07", scope="user")
        asked = [ask(broker, "eve", server=f"s{number}") for number in range(count)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(one, LeaseReply) for one in found) == 1
        assert sum(isinstance(one, BudgetExhausted) for one in found) == count - 1


async def test_who_is_charged(tmp_path: Path) -> None:
    world = world_in(tmp_path, {"ada": "a b c", "bob": "b", "eve": ""})
    async with world.broker() as broker:
        assert (await ask(broker, "ada", "cpu", server="0")).lease.charged_to is None
        await fund(broker, "b", "0.2")
        assert (await ask(broker, "ada", "cpu", server="1")).lease.charged_to == "b", "the only one"
        await fund(broker, "a", "0.01")
        await fund(broker, "c", "10", hard=False)
        assert (await ask(broker, "ada", "cpu", server="2")).lease.charged_to == "a", "the first that can pay"
        assert (await ask(broker, "ada", "gpu-10gb", server="3")).lease.charged_to == "b", "a cannot"
        assert (await ask(broker, "ada", "gpu-10gb", server="4", charge_to="c")).lease.charged_to == "c"
        with pytest.raises(BudgetExhausted, match=r"of a lacks"):
            await ask(broker, "ada", "gpu-10gb", server="5", charge_to="a")
        quote = await quote_of(broker, "ada")
        assert (quote.charge_to, quote.may_charge) == ("b", ("a", "b", "c"))
        assert [one.name for one in quote.choices] == ["a", "b", "c"]
        for user, group in (("bob", "a"), ("eve", "a"), ("ada", "d"), ("eve", "nobody's")):
            with pytest.raises(ChargeNotAllowed) as said:
                await ask(broker, user, "cpu", server="6", charge_to=group)
            assert said.value.sentence.startswith(f"You cannot charge {group}: ")


async def test_of_several_that_cannot_pay_the_one_that_lacks_least_is_told(tmp_path: Path) -> None:
    async with world_in(tmp_path, {"ada": "a b"}).broker() as broker:
        await fund(broker, "a", "0.01")
        await fund(broker, "b", "0.02")
        with pytest.raises(BudgetExhausted, match=r"The budget of b lacks 0.046667"):
            await ask(broker, "ada")


async def test_a_persons_own_budget_and_everybodys(tmp_path: Path) -> None:
    world = world_in(tmp_path)
    async with world.broker() as broker:
        everybody = await fund(broker, "*", "0.1", scope="user")
        mine = await fund(broker, "ada", "5", scope="user", period="week")
        await run(world, broker, "ada")
        await run(world, broker, "bob", flavor="cpu")
        world.clock.advance(3600)
        as_ada = await broker.budgets.listed(Reader("ada", "ada"))
        assert [(one.id, one.used) for one in as_ada] == [(mine.id, Decimal("0.4"))]
        [as_bob] = await broker.budgets.listed(Reader("bob", "bob"))
        assert (as_bob.id, as_bob.name, as_bob.used) == (everybody.id, "*", Decimal("0.05"))
        with pytest.raises(BudgetExhausted, match=r"Your budget lacks"):
            await ask(broker, "bob", "gpu-10gb", server="more")


async def test_gpu_hours_count_shares_of_whole_gpus(tmp_path: Path) -> None:
    world = world_in(tmp_path, {"ada": "lab"})
    async with world.broker() as broker:
        budget = await fund(broker, "lab", "0.5", unit="gpu_hours")
        session = await run(world, broker, "ada")
        world.clock.advance(2 * 3600)
        assert (await budget_of(broker, budget)).used == Decimal("0.25")
        await session.stop(broker)
        await world.rounds(broker, 3)
        assert (await budget_of(broker, budget)).used == Decimal("0.25"), "the entry says the same"
        assert (await ask(broker, "ada", "cpu", server="free")).lease.charged_to == "lab"
        quote = await quote_of(broker, "ada", "gpu-full")
        assert quote.lasts_s == 900
        [lab] = quote.budgets
        assert (lab.unit, lab.left) == ("gpu_hours", Decimal("0.25"))
        whole = await run(world, broker, "ada", flavor="gpu-full", server="big")
        world.clock.advance(360)
        await whole.stop(broker)
        with pytest.raises(BudgetExhausted, match=r"lacks 0.016667 GPU-hours: 0.15 are left"):
            await ask(broker, "ada", "gpu-full", server="bigger")


async def test_a_factor_makes_it_cheaper_and_what_is_free_needs_nothing(tmp_path: Path) -> None:
    catalog = small_catalog()
    prices = catalog.prices.model_copy(update={"groups": {"half": Decimal("0.5"), "free": Decimal(0)}})
    world = world_in(
        tmp_path, {"ada": "half", "bob": "free half"}, catalog=catalog.model_copy(update={"prices": prices})
    )
    async with world.broker() as broker:
        await fund(broker, "*", "0.04", scope="user")
        found = await ask(broker, "ada")
        assert (found.lease.price_per_hour, found.lease.charged_to) == (Decimal("0.2"), None)
        assert (await quote_of(broker, "bob")).price_per_hour == 0
        for number in range(3):
            await ask(broker, "bob", "cpu", server=str(number))
        with pytest.raises(BudgetExhausted):
            await ask(broker, "eve")


async def test_what_waits_in_line_is_looked_at_again_when_the_money_is_gone(tmp_path: Path) -> None:
    world = world_in(tmp_path, {"ada": "physics", "bob": "physics"})
    async with world.broker() as broker:
        await fund(broker, "physics", "10")
        await run(world, broker, "ada", flavor="gpu-full")
        waiting = await ask(broker, "bob", "cpu")
        assert waiting.lease.state is LeaseState.GRANTED
        budget = await fund(broker, "bob", "0.6", scope="user")
        queued = await ask(broker, "bob", "gpu-full", server="second")
        assert queued.lease.state is LeaseState.QUEUED
        await world.rounds(broker)
        assert (await broker.leases.get(queued.lease.id)).lease.state is LeaseState.QUEUED
        await broker.budgets.change("olga", budget.id, Decimal("-0.5"), "Less.", None)
        await world.rounds(broker)
        ended = await broker.leases.get(queued.lease.id)
        assert ended.lease.end_reason is EndReason.REFUSED
        assert ended.refusal is not None
        assert ended.refusal.code == "budget_exhausted"


async def test_a_member_who_leaves_the_group_charges_it_no_more(tmp_path: Path) -> None:
    world = world_in(tmp_path, {"ada": "physics"})
    async with world.broker() as broker:
        budget = await fund(broker, "physics", "10")
        await run(world, broker, "ada")
        world.hub.groups = {}
        world.clock.advance(3600)
        assert (await budget_of(broker, budget)).used == Decimal("0.4"), "what was begun goes on as it was"
        assert (await ask(broker, "ada", "cpu", server="new")).lease.charged_to is None
        with pytest.raises(ChargeNotAllowed):
            await ask(broker, "ada", "cpu", server="newer", charge_to="physics")


@pytest.mark.parametrize(
    "name", ["*", "a b", "ü/ö", "%25", "'; DROP TABLE budgets; --", '{"$": 1}', "x" * 255, "..", "null"]
)
async def test_odd_names_of_groups(tmp_path: Path, name: str) -> None:
    world = world_in(tmp_path)
    world.hub.groups = {"ada": frozenset({name, "other"}), "bob": frozenset({name})}
    async with world.broker() as broker:
        budget = await fund(broker, name, "0.07")
        session = await run(world, broker, "ada")
        found = await broker.leases.get(session.lease)
        assert found.lease.charged_to == name
        with pytest.raises(BudgetExhausted):
            await ask(broker, "bob", charge_to=name)
        world.clock.advance(36)
        assert (await broker.budgets.one(Reader("bob", "bob", groups=frozenset({name})), budget.id)).used
    async with world.broker() as broker:
        assert (await budget_of(broker, budget)).name == name
        assert [one.name for one in await broker.budgets.listed(OLGA)] == [name]


async def test_a_term_counts_on_its_days_only_and_keeps_what_was_added_when_it_is_moved(
    tmp_path: Path,
) -> None:
    """Today is 2 March, 09:00; the term is the 3rd and the 4th."""
    world = world_in(tmp_path, {"ada": "physics"})
    async with world.broker() as broker:
        days = {"period": "term", "starts_on": "2026-03-03", "ends_on": "2026-03-04"}
        budget = await fund(broker, "physics", "0.01", **days)
        assert (await ask(broker, "ada", server="before")).lease.charged_to is None
        with pytest.raises(ChargeNotAllowed):
            await ask(broker, "ada", server="asked", charge_to="physics")
        world.clock.advance(86400)
        with pytest.raises(BudgetExhausted):
            await ask(broker, "ada", server="first")
        await broker.budgets.change("olga", budget.id, Decimal("0.4"), "More.", None)
        session = await run(world, broker, "ada", server="second")
        assert (await broker.leases.get(session.lease)).lease.charged_to == "physics"
        moved = Setting(
            amount=Decimal("0.01"), hard=True, starts_on=date(2026, 3, 1), ends_on=date(2026, 3, 3)
        )
        assert (await broker.budgets.set("olga", budget.id, moved)).changes == Decimal("0.4")
        world.clock.advance(16 * 3600)
        await broker.budget_watch.round()
        assert await notices_of(broker, session.lease) == [], "the term is over, so nothing limits it"
        assert (await quote_of(broker, "ada")).may_charge == ()
        await world.rounds(broker, 2)
        assert (await budget_of(broker, budget)).used == 6, "from 09:00 to midnight"


async def test_a_total_counts_from_its_first_day(tmp_path: Path) -> None:
    world = world_in(tmp_path)
    async with world.broker() as broker:
        session = await run(world, broker, "ada")
        world.clock.advance(86400)
        await session.stop(broker)
        await world.rounds(broker, 3)
        everything = await fund(broker, "ada", "100", scope="user", period="total")
        since = await fund(
            broker, "ada", "7", scope="user", period="total", unit="gpu_hours", starts_on="2026-03-03"
        )
        assert (await budget_of(broker, everything)).used == Decimal("9.6")
        assert (await budget_of(broker, since)).used == Decimal("1.125"), "9 hours of an eighth"
        assert (await budget_of(broker, since)).until is None
