"""How samples become few bytes and stretches of time: nothing known is lost, nothing unknown becomes 0."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from allotment_hub.broker.metrics.cells import (
    Cell,
    from_columns,
    from_text,
    of_samples,
    to_columns,
    to_text,
    together,
)
from allotment_hub.broker.metrics.fields import DEVICE, WORKLOAD, Field, reasons_of
from allotment_hub.broker.metrics.packing import Row, Unreadable, pack, unpack
from allotment_hub.broker.metrics.recording import Recorder
from allotment_hub.broker.metrics.rounds import Round, WorkloadRates, rate, rates_of
from allotment_hub.broker.store.records import Device
from allotment_spawner.core.samples import DeviceSample, WorkloadSample
from allotment_testing.sample_makers import a_lease
from hypothesis import given, settings
from hypothesis import strategies as st

DEVICE_NAMES = [field.name for field in DEVICE]
AT = datetime(2026, 11, 30, 12, tzinfo=UTC)
CODES = st.one_of(st.none(), st.integers(-(10**15), 10**15), st.integers(0, 3))
TABLES = st.integers(1, 6).flatmap(
    lambda width: st.lists(st.lists(CODES, min_size=width, max_size=width), min_size=1, max_size=70)
)


@given(TABLES)
def test_what_is_packed_comes_back(rows: list[Row]) -> None:
    assert unpack(pack(rows)) == [tuple(row) for row in rows]


@settings(max_examples=200)
@given(TABLES, st.data())
def test_a_changed_byte_is_noticed(rows: list[Row], data: st.DataObject) -> None:
    packed = bytearray(pack(rows))
    at = data.draw(st.integers(0, len(packed) - 1))
    packed[at] ^= data.draw(st.integers(1, 255))
    try:
        # bits of the zlib header's level say nothing of the content
        assert unpack(bytes(packed)) == [tuple(row) for row in rows]
        assert at in (1, 2)
    except Unreadable:
        return


@pytest.mark.parametrize(
    "packed", [b"", b"\x00", b"\x01", b"\x07abc", b"\x01garbage", b"\x00\x00\x00\x00\x01\x00"]
)
def test_what_was_never_packed_is_unreadable(packed: bytes) -> None:
    with pytest.raises(Unreadable):
        unpack(packed)


@pytest.mark.parametrize("field", [*WORKLOAD, *DEVICE], ids=lambda field: field.name)
def test_codes_keep_0_as_0_and_the_rest_as_exactly_as_they_say(field: Field) -> None:
    assert field.value(field.code(0)) == 0
    for value in (1e-9, 0.3, 1.0, 17.5, 99.9, 1234.5, 8e9, 1e12):
        back = field.value(field.code(value))
        if field.exactness.endswith("%"):
            assert back == pytest.approx(value, rel=0.006, abs=0.006)
        else:
            step = float(field.exactness.removeprefix("to "))
            assert abs(back - value) <= step / 2 + 1e-9 * value


SAMPLES = st.lists(
    st.lists(st.one_of(st.none(), st.integers(0, 10_000)), min_size=len(DEVICE), max_size=len(DEVICE)),
    min_size=2,
    max_size=24,
)


@given(SAMPLES, st.integers(1, 23))
def test_two_halves_make_the_whole(samples: list[list[int | None]], cut: int) -> None:
    """Rolling up in two steps says what one step says."""
    cut = min(cut, len(samples) - 1)
    whole = of_samples(DEVICE, samples, each_s=5, step_s=3600)
    halves = [of_samples(DEVICE, part, each_s=5, step_s=3600) for part in (samples[:cut], samples[cut:])]
    for field, one, other in zip(DEVICE, whole, together(DEVICE, halves), strict=True):
        assert (one is None) == (other is None), field.name
        if one is not None and other is not None:
            assert other.known_s == one.known_s
            assert other.mean == pytest.approx(one.mean)
            assert other.top == pytest.approx(one.top)


@given(SAMPLES)
def test_a_minute_says_what_its_samples_say(samples: list[list[int | None]]) -> None:
    """Against sums written down anew, after packing and unpacking."""
    cells = of_samples(DEVICE, samples, each_s=2.5, step_s=60)
    [row] = unpack(pack([to_columns(DEVICE, cells)]))
    for field, cell, column in zip(
        DEVICE, from_columns(DEVICE, row), zip(*samples, strict=True), strict=True
    ):
        known = [code for code in column if code is not None]
        if not known:
            assert cell is None
            continue
        assert cell is not None
        assert cell.known_s == min(60, 2.5 * len(known))
        values = [field.value(code) for code in known]
        if field.together == "any":
            bits = 0
            for code in known:
                bits |= code
            assert cell.mean == bits
        elif field.together == "sum":
            assert cell.mean == pytest.approx(sum(values))
        else:
            assert cell.top == pytest.approx(max(values))
            assert field.code(cell.mean) == pytest.approx(field.code(sum(values) / len(values)), abs=1)


def test_a_mean_that_is_added_to_for_a_month_stays_exact() -> None:
    """Coded anew each minute it would stand still: half a percent is more than one minute adds."""
    row = of_samples(WORKLOAD, [[100] * len(WORKLOAD)], each_s=60, step_s=60)
    for _ in range(9999):
        added = together(WORKLOAD, [row, of_samples(WORKLOAD, [[300] * len(WORKLOAD)], each_s=60, step_s=60)])
        again = from_text(WORKLOAD, to_text(added))
        assert again is not None
        row = again
    assert row[0] == Cell(600_000, pytest.approx((1 + 3 * 9999) / 10_000), 3)  # type: ignore[arg-type]
    assert from_text(WORKLOAD, "[1, 2]") is None
    assert from_text(WORKLOAD, "no json") is None


def test_a_full_minute_is_never_more_than_a_minute() -> None:
    [cell, *_] = of_samples(WORKLOAD, [[1] * len(WORKLOAD)] * 14, each_s=5, step_s=60)
    assert cell == Cell(60, 0.01, 0.01)


def test_rates_are_unknown_without_a_second_look_and_when_a_counter_begins_anew() -> None:
    assert rate(None, 5.0, 5) is None
    assert rate(5.0, None, 5) is None
    assert rate(5.0, 4.0, 5) is None
    assert rate(5.0, 5.0, 0) is None
    assert rate(5.0, 5.0, 5) == 0
    now = WorkloadSample(lease="l", cpu_s=20, memory_used_bytes=7, disk_read_bytes=100, processes=2)
    before = WorkloadSample(lease="l", cpu_s=10, disk_read_bytes=50)
    found = rates_of(before, now, seconds=5, cpu_cores=4)
    assert found == WorkloadRates(2.0, 4, 7, None, 10.0, None, None, None, 2)
    assert rates_of(None, now, seconds=0, cpu_cores=4).cpu_cores_used is None


def test_a_round_becomes_rows_and_growth_of_counters() -> None:
    cut = Device("GPU-1", "node", "1g.10gb", 0, 1, "MIG-1")
    lease = a_lease(devices=[cut, Device("GPU-1", "node", "1g.10gb", 1, 1, None)])
    card = DeviceSample(
        "GPU-1", "GPU-1", power_w=100, energy_j=1000, xids=(31, 31), clock_reasons=("gpu_idle", "new")
    )
    piece = DeviceSample("GPU-1", "MIG-1", sm_percent=40, memory_used_bytes=3 * 2**20)
    first = Round(
        AT, {"GPU-1": card, "MIG-1": piece}, {"GPU-1": card}, {"lease-1": WorkloadRates(cpu_cores_used=1.5)}
    )
    recorder = Recorder()
    rows = {(kind, name): codes for kind, name, codes in recorder.rows(first, [lease])}
    assert set(rows) == {("gpu", "GPU-1"), ("workload", "lease-1"), ("device", "lease-1/0")}
    names = [field.name for field in DEVICE]
    gpu = dict(zip(names, rows["gpu", "GPU-1"], strict=True))
    assert (gpu["power_w"], gpu["energy_j"], gpu["xids"], gpu["sm_percent"]) == (200, None, 2, None)
    assert reasons_of(gpu["clock_reasons"] or 0) == ("other", "gpu_idle")
    assert dict(zip(names, rows["device", "lease-1/0"], strict=True))["sm_percent"] == 80
    assert rows["workload", "lease-1"] == [150, *[None] * 8]

    # the agent was silent for a while: growth reaches back to the last answer, and nobody's is lost
    assert recorder.rows(Round(AT, missing={"agent": "no"}), [lease]) == []
    unread = Round(AT, {}, {}, {}, {"GPU-1": "hangs"})
    assert recorder.rows(unread, [lease]) == []
    later = replace(card, energy_j=1600)
    second = Round(AT + timedelta(seconds=5), {"GPU-1": later}, {"GPU-1": later})
    [(_, _, codes)] = recorder.rows(second, [])
    assert dict(zip(names, codes, strict=True))["energy_j"] == 6000
    anew = replace(card, energy_j=3)
    [(_, _, codes)] = recorder.rows(Round(AT, {"GPU-1": anew}, {"GPU-1": anew}), [])
    assert dict(zip(names, codes, strict=True))["energy_j"] is None


@pytest.mark.parametrize("before", [{"GPU-1": "lease-9"}, {}])
def test_what_a_card_drew_for_others_is_in_no_later_session(before: dict[str, str]) -> None:
    lease = a_lease(devices=[Device("GPU-1", "node", None, 0, 1, "GPU-1")])
    recorder = Recorder()
    found = []
    for joules, holders in ((1000, before), (900_000, {"GPU-1": "lease-1"}), (900_700, {"GPU-1": "lease-1"})):
        card = DeviceSample("GPU-1", "GPU-1", energy_j=joules, power_w=50, ecc_corrected=joules)
        taken = Round(AT, {"GPU-1": card}, {"GPU-1": card}, holders=holders)
        leases = [lease] if holders.get("GPU-1") == "lease-1" else []
        rows = {kind: codes for kind, _, codes in recorder.rows(taken, leases)}
        found.append({kind: dict(zip(DEVICE_NAMES, codes, strict=True)) for kind, codes in rows.items()})
    # between the first two rounds the agent may have been silent for hours
    assert found[1]["gpu"]["energy_j"] == 8_990_000
    assert found[1]["device"] == {**found[1]["gpu"], "energy_j": None, "ecc_corrected": None}
    assert found[2]["device"]["energy_j"] == 7000
