"""The queue's order, and estimates that are honest about what they do not know."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from allotment_hub.accounting.queueing import (
    MIN_SAMPLES,
    Option,
    QueueItem,
    expected_start,
    order,
    remaining,
)
from hypothesis import given
from hypothesis import strategies as st

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
ITEMS = st.builds(
    QueueItem,
    id=st.text("abc", max_size=3),
    queue_class=st.sampled_from(["interactive", "later"]),
    seq=st.integers(1, 50),
)


def option(*blockers: str, gpu: str = "GPU-1", mask: int = 1) -> Option:
    return Option(gpu, mask, frozenset(blockers))


@given(st.lists(ITEMS, unique_by=lambda item: item.seq))
def test_first_come_first_served_within_a_class(items: list[QueueItem]) -> None:
    ordered = order(items, NOW)
    assert sorted(ordered, key=lambda item: item.seq) == sorted(items, key=lambda item: item.seq)
    first = [item.seq for item in ordered if item.queue_class == "interactive"]
    assert [item.seq for item in ordered[: len(first)]] == sorted(first)


def test_without_history_nothing_is_promised() -> None:
    few = [60.0] * (MIN_SAMPLES - 1)
    assert remaining(few, 0, 0.5) is None
    assert expected_start([option("a")], {"a": 0.0}, few, needed=1, now=NOW) is None


def test_a_session_older_than_every_earlier_one_cannot_be_told() -> None:
    assert remaining([60.0] * 100, 61.0, 0.5) is None


@given(st.lists(st.floats(1, 1e6), min_size=MIN_SAMPLES, max_size=60), st.floats(0, 1e6))
def test_what_remains_is_never_negative_and_grows_with_the_quantile(
    durations: list[float], age: float
) -> None:
    durations.sort()
    early, late = remaining(durations, age, 0.1), remaining(durations, age, 0.9)
    if early is None or late is None:
        assert sum(duration > age for duration in durations) < MIN_SAMPLES
        return
    assert 0 <= early <= late


def test_a_wide_device_waits_for_all_that_are_in_its_way() -> None:
    history = [100.0] * 10
    ages = {"young": 10.0, "old": 90.0}
    narrow = expected_start([option("old"), option("young", mask=2)], ages, history, needed=1, now=NOW)
    wide = expected_start([option("old", "young", mask=3)], ages, history, needed=1, now=NOW)
    assert narrow is not None
    assert wide is not None
    assert narrow.earliest == NOW + timedelta(seconds=10)
    assert wide.earliest == NOW + timedelta(seconds=90)


def test_the_second_in_the_queue_waits_for_the_second_device() -> None:
    history = [100.0] * 10
    ages = {"young": 10.0, "old": 90.0}
    options = [option("old"), option("old", "young", mask=3), option("young", mask=2)]
    second = expected_start(options, ages, history, needed=2, now=NOW)
    assert second is not None
    assert second.latest == NOW + timedelta(seconds=90)
    assert expected_start(options, ages, history, needed=3, now=NOW) is None, "no third device"


def test_a_holder_that_has_not_started_cannot_be_told() -> None:
    assert expected_start([option("granted")], {}, [100.0] * 10, needed=1, now=NOW) is None
