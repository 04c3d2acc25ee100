"""The table of `allot top`, the replicas of the stream's models, and counters for Prometheus."""

from __future__ import annotations

import asyncio
import io
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from allotment.commands.top_table import load_table, span
from allotment.samples import BudgetLeft, DeviceLoad, Samples, SessionLoad, WorkloadLoad
from allotment_hub.broker.metrics import frames
from allotment_hub.broker.metrics.frames import SLICE, Frame, LeaseReading
from allotment_hub.broker.metrics.rounds import WorkloadRates
from allotment_spawner.core.samples import DeviceSample
from allotment_spawner.money_wire import QuoteBudget
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from rich.console import Console

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
GIB = 2**30


@pytest.mark.parametrize(
    ("replica", "original"),
    [
        (DeviceLoad, frames.DeviceReading),
        (WorkloadLoad, frames.WorkloadReading),
        (SessionLoad, LeaseReading),
        (BudgetLeft, QuoteBudget),
    ],
)
def test_replicas_have_the_originals_members(replica: type[BaseModel], original: type[BaseModel]) -> None:
    assert set(replica.model_fields) == set(original.model_fields)


def test_readings_have_every_value_that_is_sampled() -> None:
    sampled = {field.name for field in fields(DeviceSample)} - {"device_uuid"}
    assert set(frames.DeviceReading.model_fields) == sampled | {"uuid", "profile", "model"}
    assert set(frames.WorkloadReading.model_fields) == {field.name for field in fields(WorkloadRates)}


def session(**changes: Any) -> SessionLoad:
    fields_: dict[str, Any] = {
        "lease": "0123456789abcdef",
        "user": "ann",
        "server": "",
        "flavor": "gpu-full",
        "flavor_title": "Whole GPU",
        "environment": "minimal",
        "state": "active",
        "since": NOW - timedelta(minutes=65),
        "price_per_hour": Decimal("3.2"),
        "currency": "EUR",
        "cost": Decimal("3.466667"),
        "devices": (DeviceLoad(uuid="GPU-1", gpu_uuid="GPU-1", sm_percent=70.0, power_w=300.0),),
    }
    return SessionLoad(**(fields_ | changes))


def shown(*sessions: SessionLoad, width: int = 200, everybody: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width)
    found = Samples(at=NOW, every_s=5, leases=sessions)
    console.print(load_table(found, width=width, everybody=everybody))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_what_is_unknown_is_never_zero() -> None:
    unknown = session(cost=None, devices=(DeviceLoad(uuid="MIG-1", gpu_uuid="GPU-1", profile="1g.10gb"),))
    row = shown(unknown).splitlines()[1]
    assert "0 %" not in row
    assert "0 W" not in row
    assert "?/?" in row
    # one of two cards unknown: their mean is unknown
    both = (DeviceLoad(uuid="a", gpu_uuid="a", sm_percent=50.0), DeviceLoad(uuid="b", gpu_uuid="b"))
    assert "%" not in shown(session(devices=both)).splitlines()[1]


def test_a_session_without_a_device_has_none_to_show() -> None:
    row = shown(session(devices=(), flavor_title="CPU only")).splitlines()[1]
    device, busy, memory, power, heat = row.split("runs 1 h 05 m")[1].split()[:5]
    assert {device, busy, memory, power, heat} == {"-"}


def test_what_has_not_begun_is_not_unknown() -> None:
    waits = session(state="queued", devices=(), cost=None)
    assert "?" not in shown(waits)
    assert "Ends" not in shown(waits)


def test_an_announced_end_is_seen_on_a_narrow_terminal_too() -> None:
    assert "in 9 m" in shown(session(ends_at=NOW + timedelta(minutes=9, seconds=30)), width=80)


def test_cost_left_and_end_are_shown() -> None:
    budget = BudgetLeft(
        id="b", scope="group", name="lab", unit="gpu_hours", limit=Decimal(10), left=Decimal("-0.5"),
        hard=True, period="month",
    )  # fmt: skip
    text = shown(session(budget=budget, ends_at=NOW + timedelta(minutes=9, seconds=30)))
    for part in ("3.47 EUR", "-0.50 GPU h", "in 9 m", "runs 1 h 05 m", "300 W"):
        assert part in text


@given(st.integers(20, 250), st.booleans())
def test_the_table_fits_every_terminal(width: int, everybody: bool) -> None:
    text = shown(
        session(server="a-long-name-of-a-server" * 3, user="x" * 60), width=width, everybody=everybody
    )
    assert max(len(line) for line in text.splitlines()) <= width


@pytest.mark.parametrize("width", [100, 160, 220])
def test_one_long_name_hides_nothing_of_the_others(width: int) -> None:
    hers = session(server="s" * 255, user="ann" * 80)
    text = shown(hers, session(user="benjamin", server="notes"), width=width, everybody=True)
    for part in ("70 %", "3.47 EUR", "benjamin", "(notes)"):
        assert part in text
    assert "…" in text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-5, "0 m"), (59, "0 m"), (3600, "1 h 00 m"), (86400 * 3 + 3600 * 4, "3 d 4 h")],
)
def test_spans_have_two_units(seconds: float, words: str) -> None:
    assert span(seconds) == words


def reading(lease: Any) -> LeaseReading:
    values = session(lease=lease.id, user=lease.user, server=lease.server).model_dump()
    values["devices"], values["budget"] = (), None
    return LeaseReading.model_validate(values)


async def test_a_frame_is_read_as_it_was_written_whatever_people_name_their_servers() -> None:
    hostile = 'a"}\n\r\u2028\u0085\x00</script>ü'
    leases: list[Any] = [
        SimpleNamespace(id="1", user="ann", server=hostile),
        SimpleNamespace(id="2", user="ben", server="x"),
    ]
    frame = Frame(at=NOW, every_s=2.5, leases=leases, reading=reading)
    for user, count in (("ann", 1), ("ben", 1), ("nobody", 0), (None, 2)):
        text = await frame.text(user)
        # one line of an event, whoever splits it
        assert text.isascii()
        assert text.splitlines() == [text]
        read = Samples.model_validate_json(text)
        assert (read.at, read.every_s, len(read.leases)) == (NOW, 2.5, count)
    assert Samples.model_validate_json(await frame.text("ann")).leases[0].server == hostile
    assert await frame.text("ann") is await frame.text("ann")


async def test_who_asks_at_once_makes_no_session_be_looked_at_twice() -> None:
    leases: list[Any] = [SimpleNamespace(id=str(one), user="ann", server="") for one in range(SLICE * 3)]
    frame = Frame(at=NOW, every_s=5, leases=leases, reading=reading)
    texts = await asyncio.gather(*(frame.text(user) for user in ("ann", None, "ann", None)))
    assert len(set(texts)) == 1
    assert frame.looked_at == len(leases)


class CountingLease:
    """Counts how often somebody asks whose it is."""

    asked = 0

    def __init__(self, number: int) -> None:
        self.id, self.server, self._user = str(number), "", f"user-{number}"

    @property
    def user(self) -> str:
        CountingLease.asked += 1
        return self._user


async def test_a_thousand_people_are_not_each_looked_for_among_a_thousand_sessions() -> None:
    leases: list[Any] = [CountingLease(number) for number in range(1000)]
    frame = Frame(at=NOW, every_s=5, leases=leases, reading=reading)
    texts = [await frame.text(f"user-{number}") for number in range(1000)]
    assert all(f'"user":"user-{number}"' in text for number, text in enumerate(texts))
    # once to sort them out, and once to show each
    assert CountingLease.asked <= 3 * len(leases)
