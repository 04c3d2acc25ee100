"""Rates by the wall clock, nights in which it is set, and money without a lost digit."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from allotment_hub.accounting.tariff import Tariff, Window, midnight
from hypothesis import given, settings
from hypothesis import strategies as st

BERLIN = "Europe/Berlin"
ALWAYS = frozenset(range(7))
NIGHT = Window(ALWAYS, 22 * 60, 6 * 60, Decimal("0.2"))
NIGHTS = Tariff("EUR", BERLIN, Decimal("0.4"), (NIGHT,), Decimal("0.125"))


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def test_a_day_and_a_night() -> None:
    found = list(NIGHTS.segments(at("2026-07-01 12:00"), at("2026-07-02 12:00")))
    assert [(one.start, one.end, one.per_hour) for one in found] == [
        (at("2026-07-01 12:00"), at("2026-07-01 20:00"), Decimal("0.4")),
        (at("2026-07-01 20:00"), at("2026-07-02 04:00"), Decimal("0.2")),
        (at("2026-07-02 04:00"), at("2026-07-02 12:00"), Decimal("0.4")),
    ]
    assert NIGHTS.cost([(at("2026-07-01 12:00"), at("2026-07-02 12:00"))]) == Decimal("8.0")


@pytest.mark.parametrize(
    ("night", "hours"),
    [("2026-03-28", 7), ("2026-10-24", 9), ("2026-06-01", 8)],
    ids=["spring: an hour less", "autumn: an hour more", "plain"],
)
def test_a_night_lasts_as_long_as_it_lasts(night: str, hours: int) -> None:
    start = at(f"{night} 12:00")
    cheap = [
        one for one in NIGHTS.segments(start, start + timedelta(days=1)) if one.per_hour == NIGHT.per_hour
    ]
    assert sum((one.end - one.start for one in cheap), timedelta()) == timedelta(hours=hours)


def test_a_window_that_ends_in_the_hour_that_does_not_exist_ends_with_the_jump() -> None:
    tariff = Tariff("EUR", BERLIN, Decimal(1), (Window(ALWAYS, 90, 150, Decimal(2)),))
    found = list(tariff.segments(at("2026-03-29 00:00"), at("2026-03-29 04:00")))
    assert [(one.start, one.per_hour) for one in found] == [
        (at("2026-03-29 00:00"), Decimal(1)),
        (at("2026-03-29 00:30"), Decimal(2)),
        (at("2026-03-29 01:00"), Decimal(1)),
    ]


def test_a_weekend_reaches_from_friday_evening_into_saturday() -> None:
    friday = Window(frozenset({4}), 18 * 60, 8 * 60, Decimal(0))
    tariff = Tariff("EUR", "UTC", Decimal(1), (friday,))
    assert tariff.rate(at("2026-07-03 17:59")) == 1
    assert tariff.rate(at("2026-07-03 18:00")) == 0
    assert tariff.rate(at("2026-07-04 07:59")) == 0
    assert tariff.rate(at("2026-07-04 08:00")) == 1
    assert tariff.rate(at("2026-07-03 07:00")) == 1


def test_midnights() -> None:
    assert midnight(date(2026, 7, 1), BERLIN) == at("2026-06-30 22:00")
    # Santiago's clock jumps from midnight to one
    assert midnight(date(2026, 9, 6), "America/Santiago") == at("2026-09-06 04:00")


def test_rounding_is_half_to_even_and_once() -> None:
    tariff = Tariff("EUR", "UTC", Decimal("0.000001"))
    half = timedelta(minutes=30)
    start = at("2026-07-01 00:00")
    assert tariff.cost([(start, start + half)]) == Decimal("0.000000")
    assert tariff.cost([(start, start + 3 * half)]) == Decimal("0.000002")
    assert tariff.cost([(start, start + half), (start + 2 * half, start + 3 * half)]) == Decimal("0.000001")


def test_what_old_leases_hold_is_read() -> None:
    old = Tariff.from_json([{"from_s": "0", "per_hour": "0.40", "currency": "credits"}])
    assert old == Tariff("credits", "UTC", Decimal("0.40"))
    assert Tariff.from_json(NIGHTS.as_json()) == NIGHTS


def windows() -> st.SearchStrategy[tuple[Window, ...]]:
    """Not overlapping: each within its own six hours, some over midnight."""

    def made(draw: tuple[int, int, list[int], int]) -> Window:
        quarter, start, days, rate = draw
        begin = quarter * 360 + start
        return Window(frozenset(days), begin, (quarter * 360 + 359) % 1440, Decimal(rate) / 1000)

    one = st.tuples(
        st.integers(0, 3), st.integers(0, 358), st.lists(st.integers(0, 6), min_size=1), st.integers(0, 5000)
    )
    return st.lists(one, max_size=3, unique_by=lambda draw: draw[0]).map(lambda many: tuple(map(made, many)))


@settings(deadline=None)
@given(
    windows=windows(),
    zone=st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC"]),
    day=st.sampled_from(["2026-03-28", "2026-03-07", "2026-10-24", "2026-10-31", "2026-10-03", "2026-04-04"]),
    first=st.integers(0, 2 * 86400),
    seconds=st.integers(0, 86400),
)
def test_the_same_as_minute_by_minute(
    windows: tuple[Window, ...], zone: str, day: str, first: int, seconds: int
) -> None:
    tariff = Tariff("EUR", zone, Decimal("0.7"), windows)
    start = at(f"{day} 00:00") + timedelta(seconds=first)
    end = start + timedelta(seconds=seconds)
    total, here = Fraction(0), start
    while here < end:
        after = min(here.replace(second=0) + timedelta(minutes=1), end)
        local = here.astimezone(ZoneInfo(zone))
        minute = local.hour * 60 + local.minute
        rate = Decimal("0.7")
        for window in windows:
            yesterday = (local.weekday() - 1) % 7
            if window.start < window.end:
                inside = local.weekday() in window.days and window.start <= minute < window.end
            else:
                late = local.weekday() in window.days and minute >= window.start
                inside = late or (yesterday in window.days and minute < window.end)
            rate = window.per_hour if inside else rate
        total += Fraction(rate) * int((after - here).total_seconds())
        here = after
    exact = total / 3600
    assert abs(Fraction(tariff.cost([(start, end)])) - exact) <= Fraction(1, 2 * 10**6)
    assert sum((one.end - one.start for one in tariff.segments(start, end)), timedelta()) == end - start
