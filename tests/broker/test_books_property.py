"""Any life of sessions, however the posting was split, sums to what an independent calculation says."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from allotment_hub.broker.store.ledger import Entry, entries_from
from allotment_hub.prices import DAYS, Prices, Schedule
from allotment_testing.money_life import GPU_SHARES, Deed, MoneyLife, fresh_database
from allotment_testing.money_oracle import Hours, MoneyOracle, Price, half_even
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

LIVES = int(os.environ.get("ALLOTMENT_MONEY_LIVES", "100"))
MEMORY = Path("/dev/shm")
STARTS = {
    "Europe/Berlin": "2026-03-28 12:00",
    "America/New_York": "2026-10-31 20:00",
    "Australia/Lord_Howe": "2026-04-04 06:00",
    "America/Santiago": "2026-09-05 18:00",
    "Asia/Kathmandu": "2026-06-30 12:00",
    "UTC": "2026-12-31 12:00",
}
HOUR = 3600
DAY = 24 * HOUR
MILLIONTHS = st.integers(0, 3_000_000).map(lambda number: Decimal(number).scaleb(-6))


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fresh_database(tmp_path_factory.mktemp("books"))


def schedules() -> st.SearchStrategy[tuple[Schedule, ...]]:
    """Each in six hours of its own, so that none overlap; the last one reaches over midnight."""

    def made(quarter: int, first: int, days: list[int], price: tuple[str, Decimal]) -> Schedule:
        begin, end = quarter * 360 + 60 + first, quarter * 360 + 410
        return Schedule(
            name=f"s{quarter}",
            days=tuple(DAYS[day] for day in sorted(days)),
            **{"from": clock(begin % 1440), "to": clock(end % 1440), price[0]: price[1]},  # type: ignore[arg-type]
        )

    one = st.builds(
        made,
        st.integers(0, 3),
        st.integers(0, 349),
        st.lists(st.integers(0, 6), min_size=1, max_size=7, unique=True),
        st.tuples(st.sampled_from(["factor", "price_per_hour"]), MILLIONTHS),
    )
    return st.lists(one, max_size=3, unique_by=lambda schedule: schedule.name).map(tuple)


def clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


SPANS = st.one_of(
    st.integers(0, 2 * HOUR), st.integers(0, DAY), st.sampled_from([HOUR, DAY, 3 * DAY, 6 * HOUR, 1])
)
DEEDS = st.one_of(
    st.builds(Deed, st.just("pass"), st.integers(0, 2), SPANS),
    st.builds(Deed, st.just("pass"), st.integers(0, 2), SPANS),
    st.builds(Deed, st.just("round")),
    st.builds(Deed, st.just("look")),
    st.builds(Deed, st.just("down"), st.just(0), SPANS),
    st.builds(Deed, st.just("jump"), st.just(0), st.integers(-2 * DAY, 2 * DAY)),
    st.builds(Deed, st.just("start"), st.integers(0, 2)),
    st.builds(Deed, st.just("stop"), st.integers(0, 2), st.integers(0, 2)),
    st.builds(Deed, st.just("out"), st.integers(0, 2), st.integers(0, DAY)),
    st.builds(Deed, st.just("back"), st.integers(0, 2), st.integers(0, 2 * HOUR)),
    st.builds(Deed, st.just("crash"), st.just(0), st.integers(0, 8)),
)


def price_of(prices: Prices, rate: Decimal, factor: Decimal | None) -> Price:
    """From the catalogue's words: a schedule's factor multiplies the rate, its price replaces it, and the
    group's factor multiplies both; each is rounded to 6 places, half to even."""
    group = Fraction(1 if factor is None else factor)

    def millionths(price: Fraction) -> int:
        exact = price * group * 10**6
        return half_even(exact.numerator, exact.denominator)

    hours = tuple(
        Hours(
            frozenset(DAYS.index(day) for day in one.days),
            int(one.from_[:2]) * 60 + int(one.from_[3:]),
            int(one.to[:2]) * 60 + int(one.to[3:]),
            millionths(
                Fraction(rate) * Fraction(one.factor)
                if one.price_per_hour is None and one.factor is not None
                else Fraction(one.price_per_hour or 0)
            ),
        )
        for one in prices.schedules
    )
    return Price(prices.zone, millionths(Fraction(rate)), hours)


@example(
    # two halves of the last digit, one on each side of midnight; and one half alone
    zone="UTC",
    schedules=(),
    rate=Decimal("0.000001"),
    factor=None,
    late=timedelta(hours=11, minutes=30),
    deeds=[
        Deed("pass", 0, HOUR // 2),
        Deed("start", 0),
        Deed("pass", 0, HOUR // 2),
        Deed("round"),
        Deed("stop", 0, 0),
        Deed("stop", 2, 0),
        Deed("round"),
    ],
)
@example(
    # out of order since before it began
    zone="UTC",
    schedules=(),
    rate=Decimal("0.333333"),
    factor=None,
    late=timedelta(0),
    deeds=[
        Deed("look"),
        Deed("out", 0, HOUR),
        Deed("pass", 0, HOUR),
        Deed("look"),
        Deed("back"),
        Deed("pass", 1, HOUR),
        Deed("look"),
    ],
)
@example(
    # a day that was posted with an outage, which was over before the clock had come there again
    zone="UTC",
    schedules=(),
    rate=Decimal("0.333333"),
    factor=None,
    late=timedelta(0),
    deeds=[
        Deed("start", 0),
        Deed("pass", 0, HOUR),
        Deed("out", 1, 0),
        Deed("jump", 0, DAY),
        Deed("round"),
        Deed("jump", 0, -DAY),
        Deed("back", 1, 0),
        Deed("pass", 0, HOUR),
        Deed("stop", 0, 0),
        Deed("round"),
    ],
)
@example(
    zone="Europe/Berlin",
    schedules=(),
    rate=Decimal("0.333333"),
    factor=None,
    late=timedelta(minutes=7),
    deeds=[
        Deed("start", 0),
        Deed("pass", 1, DAY),
        Deed("round"),
        Deed("out", 1, DAY),
        Deed("pass", 0, HOUR),
        Deed("stop", 0, 1),
    ],
)
@example(
    zone="UTC",
    schedules=(),
    rate=Decimal(1),
    factor=Decimal("0.5"),
    late=timedelta(0),
    deeds=[
        Deed("start", 1),
        Deed("jump", 0, 3 * DAY),
        Deed("round"),
        Deed("jump", 0, -3 * DAY),
        Deed("pass", 0, HOUR),
        Deed("crash", 0, 4),
        Deed("stop", 1, 2),
        Deed("round"),
    ],
)
@settings(
    max_examples=LIVES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    zone=st.sampled_from(sorted(STARTS)),
    schedules=schedules(),
    rate=MILLIONTHS,
    factor=st.one_of(st.none(), MILLIONTHS),
    late=st.timedeltas(timedelta(0), timedelta(hours=12)),
    deeds=st.lists(DEEDS, min_size=4, max_size=25),
)
def test_any_life_sums_to_what_it_should(
    empty: Path,
    zone: str,
    schedules: tuple[Schedule, ...],
    rate: Decimal,
    factor: Decimal | None,
    late: timedelta,
    deeds: list[Deed],
) -> None:
    prices = Prices(zone=zone, schedules=schedules, refund_minutes=60)
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        start = datetime.fromisoformat(STARTS[zone]).replace(tzinfo=UTC) + late
        life = MoneyLife(Path(folder) / "books.sqlite", prices, rate, factor, start)
        asyncio.run(live(life, empty, price_of(prices, rate, factor), deeds))


async def live(life: MoneyLife, empty: Path, price: Price, deeds: Sequence[Deed]) -> None:
    await life.open(empty)
    try:
        for deed in (Deed("start", 2), *deeds):
            if deed.verb == "look":
                look(life, price)
            else:
                await life.do(deed)
        await life.settle()
        check(life, price, await life.store.read(lambda tx: entries_from(tx.connection)))
    finally:
        await life.close()


def look(life: MoneyLife, price: Price) -> None:
    """What is shown, from memory, while it runs."""
    for lease in life.running():
        assert lease.active_at is not None
        oracle = MoneyOracle(price, lease.active_at, life.recorded(int(lease.id[1:])))
        until = lease.stopped_at or life.now
        cost = Decimal(oracle.millionths(until)).scaleb(-6)
        assert life.ledger.cost(lease, life.now) == cost
        posted = sum(Decimal(row["amount"]) for row in life.rows(entries_sql(lease.id)))
        assert life.ledger.unposted(lease, life.now).amount == max(cost - posted, Decimal(0))


def entries_sql(lease_id: str) -> str:
    return f"SELECT amount FROM entries WHERE lease = '{lease_id}'"


def check(life: MoneyLife, price: Price, entries: Sequence[Entry]) -> None:
    by_lease: dict[str, list[Entry]] = {}
    for entry in entries:
        by_lease.setdefault(str(entry.lease), []).append(entry)
    rows = life.rows("SELECT * FROM leases")
    assert {row["state"] for row in rows} == {"ended"}
    for row in rows:
        active, stopped = (
            datetime.fromisoformat(row[name]).replace(tzinfo=UTC) for name in ("active_at", "stopped_at")
        )
        oracle = MoneyOracle(price, active, life.known[row["id"]])
        mine = by_lease.pop(row["id"], [])
        check_sums(oracle, stopped, mine, GPU_SHARES[int(row["id"][1:])])
        check_refund(oracle, stopped, mine, row["end_reason"])
        check_days(mine, price.zone)
    assert not by_lease


def check_sums(oracle: MoneyOracle, stopped: datetime, entries: Sequence[Entry], gpus: Decimal) -> None:
    used = [entry for entry in entries if not entry.key.startswith("refund:")]
    assert sum(entry.amount for entry in used) == Decimal(oracle.millionths(stopped)).scaleb(-6)
    seconds = Decimal(oracle.microseconds(stopped)).scaleb(-6)
    assert sum(entry.seconds for entry in used) == seconds
    assert sum(entry.gpu_seconds for entry in used) == seconds * gpus
    for entry in entries:
        assert entry.kind == "refund" or (entry.amount >= 0 and entry.seconds >= 0)
        assert entry.amount or entry.seconds, "an entry of nothing"
    assert sum(entry.amount for entry in entries) >= 0


def check_refund(oracle: MoneyOracle, stopped: datetime, entries: Sequence[Entry], reason: str) -> None:
    given_back = [entry.amount for entry in entries if entry.key.startswith("refund:")]
    if reason == "stopped":
        assert not given_back
        return
    before = oracle.millionths(stopped - timedelta(minutes=60))
    owed = Decimal(oracle.millionths(stopped) - before).scaleb(-6)
    assert sum(given_back) == -owed


def check_days(entries: Sequence[Entry], zone: str) -> None:
    """Usage lies within the day that its key names."""
    for entry in entries:
        if entry.kind != "usage":
            continue
        day = entry.key.split(":")[2]
        last = entry.to_at - timedelta(microseconds=1)
        assert {entry.from_at.astimezone(ZoneInfo(zone)).date().isoformat()} == {day}
        assert entry.from_at < entry.to_at
        assert last.astimezone(ZoneInfo(zone)).date().isoformat() == day
