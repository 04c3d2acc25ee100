"""Counters and sums for Prometheus: nothing twice, nothing lost, nothing negative."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from allotment_hub.broker.metrics.rounds import Round
from allotment_hub.broker.metrics.sums import Sums, outage_sums
from allotment_hub.broker.metrics.tally import Histogram, Tally
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.sums import Amount, Outage
from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_spawner.core.samples import DeviceSample
from hypothesis import given
from hypothesis import strategies as st

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def lease(**changes: Any) -> Lease:
    values: dict[str, Any] = dict.fromkeys(Lease.__slots__) | {
        "seq": 1,
        "id": "one",
        "kind": "session",
        "queue_class": "interactive",
        "user": "ann",
        "server": "",
        "environment": "minimal",
        "flavor": "gpu-10gb",
        "state": LeaseState.QUEUED,
        "price_per_hour": Decimal("0.4"),
        "created_at": NOW,
        "devices": (),
    }
    return Lease(**(values | changes))


def life() -> list[Lease]:
    waits = lease()
    granted = replace(waits, state=LeaseState.GRANTED, granted_at=NOW + timedelta(seconds=40))
    active = replace(granted, state=LeaseState.ACTIVE, active_at=NOW + timedelta(seconds=43))
    ending = replace(active, state=LeaseState.ENDING, end_reason=EndReason.STOPPED)
    return [waits, granted, active, ending, replace(ending, state=LeaseState.ENDED)]


@given(st.lists(st.integers(1, 3), min_size=5, max_size=5))
def test_each_step_is_counted_once_however_often_it_is_told(times: list[int]) -> None:
    tally = Tally()
    for step, count in zip(life(), times, strict=True):
        for _ in range(count):
            tally.committed([step])
    assert tally.granted == {"gpu-10gb": 1}
    assert tally.ended == {("gpu-10gb", "stopped"): 1}
    assert dict(tally.waits["gpu-10gb"].buckets())["60.0"] == 1
    assert dict(tally.waits["gpu-10gb"].buckets())["30.0"] == 0
    assert tally.starts["gpu-10gb"].total_s == 3


def test_what_was_there_at_the_start_is_not_counted_again() -> None:
    tally = Tally()
    tally.load([life()[2]])
    tally.committed([life()[2]])
    assert not tally.granted
    tally.committed([life()[3]])
    assert tally.ended.total() == 1


def test_a_refused_start_counts_by_its_code() -> None:
    refused = lease(
        state=LeaseState.ENDED, end_reason=EndReason.REFUSED, refusal={"code": "budget_exhausted"}
    )
    tally = Tally()
    tally.committed([refused])
    tally.refuse("limit_reached")
    assert tally.refused == {"budget_exhausted": 1, "limit_reached": 1}
    assert not tally.granted


@given(st.lists(st.floats(-100, 1e6), max_size=30))
def test_histograms_count_all_and_never_less(seconds: list[float]) -> None:
    histogram = Histogram((1.0, 60.0))
    for value in seconds:
        histogram.add(value)
    counts = [count for _, count in histogram.buckets()]
    assert counts == sorted(counts)
    assert counts[-1] == len(seconds)
    assert histogram.total_s >= 0


def test_kinds_of_xids_are_bounded() -> None:
    tally = Tally()
    for xid in range(200):
        sample = DeviceSample(gpu_uuid="GPU-1", device_uuid="GPU-1", xids=(xid,))
        tally.sampled(Round(at=NOW, gpus={"GPU-1": sample}))
    assert len(tally.xids) == 65
    assert tally.xids["GPU-1", "other"] == 136


AMOUNTS = st.builds(
    Amount,
    seq=st.just(0),
    kind=st.sampled_from(["usage", "refund"]),
    currency=st.sampled_from(["EUR", "credits"]),
    amount=st.decimals(-1000, 1000, places=6),
    gpu_seconds=st.decimals(0, 1000, places=6),
)


@given(st.lists(AMOUNTS, max_size=20), st.data())
def test_sums_are_exact_whatever_is_read_twice(found: list[Amount], data: st.DataObject) -> None:
    numbered = [replace(one, seq=number) for number, one in enumerate(found, start=1)]
    sums = Sums()
    while sums.seen < len(numbered):
        start = data.draw(st.integers(0, sums.seen))
        sums.add(numbered[start : data.draw(st.integers(sums.seen + 1, len(numbered)))])
    for key in {(one.kind, one.currency) for one in numbered}:
        mine = [one for one in numbered if (one.kind, one.currency) == key]
        assert sums.amounts[key] == sum((one.amount for one in mine), Decimal(0))
        assert sums.entries[key] == len(mine)


def test_outages_count_until_now_and_never_backwards() -> None:
    hour = timedelta(hours=1)
    found = [
        Outage("engine", NOW - 3 * hour, NOW - 2 * hour),
        Outage("gpu:GPU-1", NOW - hour, None),
        Outage("gpu:GPU-2", NOW + hour, None),  # the clock was set back meanwhile
    ]
    sums = outage_sums(found, NOW)
    assert (sums["engine"].count, sums["engine"].open, sums["engine"].seconds) == (1, 0, 3600)
    assert (sums["gpu"].count, sums["gpu"].open, sums["gpu"].seconds) == (2, 2, 3600)
    assert outage_sums([], NOW)["gpu"].count == 0
