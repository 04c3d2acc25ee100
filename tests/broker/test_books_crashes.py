"""Death at each single step of posting: the books of the next start are the same as without it."""

from __future__ import annotations

import asyncio
import tempfile
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from allotment_hub.broker.store.ledger import entries_from
from allotment_hub.prices import Prices, Schedule
from allotment_testing.money_life import Deed, MoneyLife, fresh_database

HOUR = 3600
MEMORY = Path("/dev/shm")
START = datetime(2026, 3, 28, 12, tzinfo=UTC)
NIGHT = Schedule(name="night", factor=Decimal("0.5"), **{"from": "22:00", "to": "06:00"})  # type: ignore[arg-type]
PRICES = Prices(zone="Europe/Berlin", schedules=(NIGHT,))
LIFE = (
    Deed("start", 0),
    Deed("start", 2),
    Deed("pass", 1, 13 * HOUR),
    Deed("round"),
    Deed("out", 1, HOUR),
    Deed("pass", 2, 20 * HOUR),
    Deed("round"),
    Deed("back", 1),
    Deed("pass", 1, 26 * HOUR),
    Deed("round"),
    Deed("stop", 0, 1),
    Deed("round"),
    Deed("stop", 2, 0),
    Deed("round"),
)
Row = tuple[str, str, Decimal, Decimal]


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fresh_database(tmp_path_factory.mktemp("books"))


async def books(empty: Path, folder: Path, steps: int) -> tuple[list[Row], list[str]]:
    """The entries of this life when it dies after so many steps, and where it died."""
    life = MoneyLife(folder / f"{steps}.sqlite", PRICES, Decimal("0.4"), None, START)
    await life.open(empty)
    try:
        await life.do(Deed("crash", 0, steps))
        for deed in LIFE:
            died = len(life.deaths)
            await life.do(deed)
            if len(life.deaths) > died:
                await life.do(deed)
        found = await life.store.read(lambda tx: entries_from(tx.connection))
        return sorted((one.key, one.kind, one.amount, one.seconds) for one in found), life.deaths
    finally:
        await life.close()


def test_death_at_every_step_changes_nothing(empty: Path) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        die_at_every_step(empty, Path(folder))


def die_at_every_step(empty: Path, tmp_path: Path) -> None:
    calm, _ = asyncio.run(books(empty, tmp_path, 10_000))
    assert [key for key, *_ in calm] == [
        "lease:l0:2026-03-28",
        "lease:l0:2026-03-29",
        "lease:l0:2026-03-30",
        "lease:l0:2026-03-31",
        "lease:l2:2026-03-28",
        "lease:l2:2026-03-29",
        "lease:l2:2026-03-30",
        "lease:l2:2026-03-31",
        "refund:l0",
    ]
    places: list[str] = []
    for steps in range(200):
        found, deaths = asyncio.run(books(empty, tmp_path, steps))
        assert found == calm, f"died at {deaths}"
        if not deaths:
            break
        places += deaths
    assert {"post.before", "post.commit", "post.after", "finish.commit", "finish.after"} <= set(places)
