"""Periods by the wall clock, what is left, and how long that pays, against counting minute by minute."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from allotment_hub.accounting.budgeting import (
    BEGINNING,
    Period,
    Pieces,
    Standing,
    Terms,
    Unit,
    burn,
    choose,
    lasts,
    pattern,
    period_at,
    together,
)
from allotment_hub.accounting.tariff import Tariff, Window
from hypothesis import given, settings
from hypothesis import strategies as st

BERLIN = "Europe/Berlin"
ZONES = (BERLIN, "America/New_York", "America/Santiago", "Australia/Lord_Howe", "Asia/Kolkata", "UTC")
ALWAYS = frozenset(range(7))
NIGHTS = Tariff("EUR", "UTC", Decimal("0.4"), (Window(ALWAYS, 22 * 60, 6 * 60, Decimal("0.1")),))


def used_by(tariff: Tariff, unit: Unit, now: datetime) -> Pieces:
    return burn(tariff, unit, pattern(tariff.zone, tariff.windows, now))


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("period", "now", "since", "until"),
    [
        ("week", "2026-03-29 12:00", "2026-03-22 23:00", "2026-03-29 22:00"),
        ("week", "2026-03-29 21:59", "2026-03-22 23:00", "2026-03-29 22:00"),
        ("week", "2026-03-29 22:00", "2026-03-29 22:00", "2026-04-05 22:00"),
        ("month", "2026-10-31 22:59", "2026-09-30 22:00", "2026-10-31 23:00"),
        ("month", "2026-12-31 23:00", "2026-12-31 23:00", "2027-01-31 23:00"),
    ],
)
def test_periods_begin_at_midnight_of_the_zone(period: Period, now: str, since: str, until: str) -> None:
    assert period_at(Terms(period), at(now), BERLIN) == (at(since), at(until))


def test_a_term_is_the_term_before_and_after_it_and_its_last_day_belongs_to_it() -> None:
    terms = Terms("term", date(2026, 10, 1), date(2027, 1, 31))
    bounds = (at("2026-09-30 22:00"), at("2027-01-31 23:00"))
    for now in ("2020-01-01", "2026-11-11", "2030-01-01"):
        assert period_at(terms, at(now), BERLIN) == bounds


def test_a_total_counts_from_the_beginning_or_from_its_first_day() -> None:
    assert period_at(Terms("total"), at("2026-11-11"), BERLIN) == (BEGINNING, None)
    since = period_at(Terms("total", date(2026, 7, 1)), at("2026-11-11"), BERLIN)
    assert since == (at("2026-06-30 22:00"), None)


@given(
    zone=st.sampled_from(ZONES),
    period=st.sampled_from(["week", "month"]),
    minutes=st.integers(0, 3 * 366 * 24 * 60),
)
def test_each_instant_is_in_one_period_and_they_follow_each_other(
    zone: str, period: Period, minutes: int
) -> None:
    now = at("2025-12-30") + timedelta(minutes=minutes)
    since, until = period_at(Terms(period), now, zone)
    assert until is not None
    assert since <= now < until
    for edge, day in ((since, 0), (until, 0)):
        local = edge.astimezone(ZoneInfo(zone))
        assert (local.weekday() if period == "week" else local.day - 1) == day
        before = (edge - timedelta(microseconds=1)).astimezone(ZoneInfo(zone))
        assert before.date() == local.date() - timedelta(days=1)
    assert period_at(Terms(period), since, zone) == (since, until)
    assert period_at(Terms(period), until, zone)[0] == until


def standing(amount: str, used: str, changes: str = "0") -> Standing:
    return Standing("money", True, Decimal(amount), Decimal(changes), Decimal(used), at("2026-01-01"), None)


def test_what_is_left_and_what_lacks() -> None:
    some = standing("10", "9.98", "0.5")
    assert some.left == Decimal("0.52")
    assert some.lacks(timedelta(minutes=10), Decimal("3.12")) == 0
    assert some.lacks(timedelta(minutes=10), Decimal("3.18")) == Decimal("0.01")
    assert standing("0", "0").lacks(timedelta(minutes=10), Decimal("0.000001")) == Decimal("0.000001")
    assert some.reached(95)
    assert not some.reached(96)
    assert standing("0", "0.000001").reached(100)
    assert not standing("0", "0").reached(1), "nothing was used of nothing"


def test_a_night_makes_it_last_longer() -> None:
    noon = at("2026-07-01 12:00")
    pieces = used_by(NIGHTS, "money", noon)
    assert lasts(Decimal(4), pieces) == timedelta(hours=10)
    assert lasts(Decimal("4.8"), pieces) == timedelta(hours=18)
    assert lasts(Decimal("7.2"), pieces) == timedelta(days=1)
    assert lasts(Decimal(720), pieces) == timedelta(days=100), "the week goes on and on"
    assert lasts(Decimal(0), pieces) == timedelta()
    assert lasts(Decimal(-1), pieces) == timedelta()
    assert lasts(Decimal(4), together([pieces, pieces])) == timedelta(hours=5)


def test_what_costs_nothing_has_no_end() -> None:
    free = Tariff("EUR", "UTC", Decimal(0))
    assert lasts(Decimal(1), used_by(free, "money", at("2026-07-01"))) is None
    assert lasts(Decimal(1), together([])) is None
    assert lasts(Decimal("1e12"), used_by(Tariff("EUR", "UTC", Decimal("1e-6")), "money", at("2026-07-01")))


def test_gpu_hours_go_at_one_speed_day_and_night() -> None:
    part = Tariff("EUR", "UTC", Decimal("0.4"), NIGHTS.windows, Decimal("0.125"))
    assert lasts(Decimal(1), used_by(part, "gpu_hours", at("2026-07-01"))) == timedelta(hours=8)
    assert lasts(Decimal(1), used_by(NIGHTS, "gpu_hours", at("2026-07-01"))) is None


def tariffs(zone: str) -> st.SearchStrategy[Tariff]:
    rate = st.integers(0, 4_000_000).map(lambda one: Decimal(one).scaleb(-6))
    window = st.builds(
        lambda start, length, days, price: Window(
            frozenset(days), start, (start + length) % 1440, price
        ),
        st.integers(0, 1439), st.integers(1, 1439), st.lists(st.integers(0, 6), min_size=1), rate,
    )  # fmt: skip
    return st.builds(
        lambda per_hour, windows: Tariff("EUR", zone, per_hour, tuple(windows)),
        rate,
        st.lists(window, max_size=1),
    )


@settings(deadline=None, max_examples=60)
@given(
    data=st.data(),
    zone=st.sampled_from(ZONES),
    day=st.sampled_from(["2026-03-28", "2026-10-24", "2026-10-31", "2026-09-05", "2026-06-01"]),
    second=st.integers(0, 86399),
    left=st.integers(0, 100_000_000),
)
def test_the_same_as_minute_by_minute(
    data: st.DataObject, zone: str, day: str, second: int, left: int
) -> None:
    many = data.draw(st.lists(tariffs(zone), min_size=1, max_size=3))
    now = at(day) + timedelta(seconds=second)
    money = Decimal(left).scaleb(-6)
    gone = timedelta(seconds=data.draw(st.integers(0, 59)))
    found = lasts(money, *(burn(one, "money", pattern(zone, one.windows, now - gone), gone) for one in many))
    rest, here = Fraction(money), now
    while here < now + timedelta(days=3):
        after = here.replace(second=0) + timedelta(minutes=1)
        rate = sum((Fraction(one.rate(here)) for one in many), Fraction(0))
        step = rate * Fraction(int((after - here).total_seconds()), 3600)
        if rate and step > rest:
            exact = (here - now) / timedelta(seconds=1) + float(rest / rate) * 3600
            assert found is not None
            assert abs(found.total_seconds() - exact) < 1e-3
            return
        rest, here = rest - step, after
    assert found is None or found >= timedelta(days=3) - timedelta(minutes=1)


def test_who_is_charged() -> None:
    assert choose({}) is None
    assert choose({"b": Decimal(-3), "a": Decimal(0)}) == "a"
    assert choose({"b": Decimal(-3), "a": Decimal("0.1")}) == "b"
    assert choose({"c": Decimal("0.3"), "b": Decimal("0.2"), "a": Decimal("0.4")}) == "b"
    assert choose({"ü mit Leer": Decimal(-1), "Ü": Decimal(-1)}) == "Ü"
