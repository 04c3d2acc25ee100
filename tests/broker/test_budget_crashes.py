"""kill -9 between any two steps of what budgets write, and sums that miss no entry written meanwhile."""

from __future__ import annotations

import asyncio
import os
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from allotment_hub.broker.factory import Broker
from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.budget_use import Amounts, BudgetUse, Whose
from allotment_hub.broker.store.connect import sqlite_url
from allotment_hub.broker.store.ledger import Entry
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.store import Store
from allotment_spawner.money_wire import BudgetView
from allotment_testing.broker_world import BrokerWorld
from allotment_testing.budget_life import OLGA, budget_of, fund, notices_of, run, world_in
from allotment_testing.crashes import Crash, CrashPoint

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
STEPS = 24
"""Before, in and after each commit; the test says if there are more or fewer."""
KILLED_AT = (
    range(STEPS + 1) if os.environ.get("ALLOTMENT_KILL_MATRIX") == "full" else (1, 4, 8, 10, 17, STEPS)
)


async def life(
    world: BrokerWorld, broker: Broker, physics: BudgetView, lab: BudgetView, began: datetime
) -> None:
    """Warned, used up, raised, used up again: whoever is killed in it does it all again."""
    for hours, more in ((0.85, None), (1.05, "0.6"), (1.65, None), (2.5, "0.1")):
        world.clock.now = max(world.clock.now, began + timedelta(hours=hours))
        await broker.budget_watch.round()
        if more is not None:
            await broker.budgets.change("olga", physics.id, Decimal(more), "More.", f"key{hours}")
            await broker.budget_watch.round()
    await broker.budgets.transfer(OLGA, lab.id, physics.id, Decimal(3), "The lab pays.", "key")
    await broker.budget_watch.round()


@pytest.mark.parametrize("steps", KILLED_AT)
async def test_killed_at_each_step(tmp_path: Path, steps: int) -> None:
    world = world_in(tmp_path, {"ada": "physics"})
    async with world.broker() as broker:
        physics, lab = await fund(broker, "physics", "0.4"), await fund(broker, "lab", "5")
        session = await run(world, broker, "ada")
    began, point = world.clock(), CrashPoint()
    dying = world.build(point)
    await dying.start()
    point.arm(steps)
    try:
        await life(world, dying, physics, lab, began)
        assert steps == STEPS, f"it ends after {steps} steps"
    except Crash:
        assert steps < STEPS, "it has more steps"
    finally:
        await dying.close()
    async with world.broker() as broker:
        await life(world, broker, physics, lab, began)
        seen = await budget_of(broker, physics)
        assert (seen.changes, seen.used) == (Decimal("3.7"), Decimal("1.0"))
        assert (await budget_of(broker, lab)).left == 2
        assert sorted(one.amount for one in seen.history) == [
            Decimal(one) for one in ("0.1", "0.4", "0.6", "3")
        ]
        told = await notices_of(broker, session.lease)
        assert [one for one in told if "used up" in one] == [], "money came"
        assert len(told) == len(set(told)) <= 2


class NothingRuns:
    def unposted(self, lease: Lease, now: datetime, since: datetime) -> Amounts:
        raise AssertionError(f"{lease.id}, {now}, {since}")


@pytest.mark.parametrize("seed", range(5))
async def test_no_entry_is_missed_or_counted_twice(tmp_path: Path, seed: int) -> None:
    """Sums are read and entries are written at the same time, in whatever order."""
    store, chance = Store(url=sqlite_url(tmp_path / "broker.sqlite")), random.Random(seed)
    use = BudgetUse(
        store=store, book=Book(), running=NothingRuns(), currency="credits", day_of=lambda at: at.date()
    )
    store.listen_entries(use.posted)
    await store.open()
    total: dict[tuple[str, date], Decimal] = {}

    async def post(number: int) -> None:
        owner, at = chance.choice("abc"), NOW + timedelta(days=chance.randrange(3))
        group, money = chance.choice(["x", "y", None]), Decimal(chance.randrange(-5, 100))
        entry = Entry(
            id=str(number), key=str(number), kind="usage", owner=owner, charged_to=group,
            from_at=at, to_at=at,
            seconds=money, gpu_seconds=money / 8, amount=money, currency=chance.choice(["credits", "EUR"]),
            reason="", made_by="", made_at=NOW,
        )  # fmt: skip
        await store.write("post", lambda tx: tx.post(entry))
        if entry.currency == "credits":
            for name in (owner, group or "-"):
                total[name, at.date()] = total.get((name, at.date()), Decimal(0)) + money

    async def read() -> None:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        since = NOW.replace(hour=0) + timedelta(days=chance.randrange(2))
        await use.read({("user", chance.choice("abc")): since, ("group", chance.choice("xy")): since})

    work = [*(post(number) for number in range(60)), *(read() for _ in range(40))]
    chance.shuffle(work)
    await asyncio.gather(*work)
    await _check(use, total)
    await store.close()


async def _check(use: BudgetUse, total: dict[tuple[str, date], Decimal]) -> None:
    first = NOW.replace(hour=0)
    people: list[Whose] = [("user", name) for name in "abc"]
    whose: list[Whose] = [*people, *(("group", name) for name in "xy")]
    await use.read(dict.fromkeys(whose, first))
    for one in whose:
        for days in range(3):
            day = first + timedelta(days=days)
            found = use.of(one, day, day + timedelta(days=1), NOW)
            assert found.money == total.get((one[1], day.date()), Decimal(0)), one
