"""Sessions and their load as a table that fits the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from rich.table import Table
from rich.text import Text

from allotment.samples import BudgetLeft, DeviceLoad, Samples, SessionLoad

__all__ = ["UNKNOWN", "headline", "load_table", "size", "span"]

UNKNOWN = "?"
_BAR = 8
_GIB = 2**30
_NAMED = ("Person", "Session")


@dataclass(frozen=True, slots=True)
class _Column:
    """`width`: with its gap. Columns of a lower `rank` stay when there is little room."""

    name: str
    width: int
    rank: int
    cell: Callable[[SessionLoad, Samples], str | Text]
    right: bool = False


def headline(found: Samples, *, everybody: bool) -> Text:
    """How many run of whose, when it was, how often, and whether the cards are real."""
    running = sum(one.state == "active" for one in found.leases)
    whose = "" if everybody else " of yours"
    sessions = f"1 session{whose} runs" if running == 1 else f"{running} sessions{whose} run"
    text = Text(
        f"{sessions} · {found.at.astimezone():%H:%M:%S %Z} · every {found.every_s:g} s · ? is unknown"
    )
    if any(one.simulated for one in found.leases):
        text.append(" · these GPUs are simulated", style="yellow")
    return text


def load_table(found: Samples, *, width: int, everybody: bool) -> Table:
    """A row a session; on a narrow terminal the columns that matter least are left out."""
    idle = {name for name, used in _only_if_used(found.leases) if not used}
    idle |= set() if everybody else {"Person"}
    shown = [one for one in _COLUMNS if one.name not in idle]
    while sum(one.width for one in shown) > width and len(shown) > 1:
        shown.remove(max(shown, key=lambda one: one.rank))
    # people choose names: a long one may take what is left over, not what others need
    named = sum(one.name in _NAMED for one in shown)
    more = max(0, width - sum(one.width for one in shown)) // max(1, named)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in shown:
        table.add_column(
            column.name,
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="ellipsis",
            max_width=column.width - 1 + more if column.name in _NAMED else None,
        )
    for one in found.leases:
        table.add_row(*(column.cell(one, found) for column in shown))
    return table


def _only_if_used(leases: Sequence[SessionLoad]) -> list[tuple[str, bool]]:
    return [
        ("Left", any(one.budget is not None for one in leases)),
        ("Ends", any(one.ends_at is not None for one in leases)),
    ]


def _began(one: SessionLoad) -> bool:
    """Before its server answers it costs nothing and does nothing: that is not unknown."""
    return one.state not in ("queued", "granted")


def size(value: int | None) -> str:
    """GiB with one digit; the question mark when it is unknown."""
    return UNKNOWN if value is None else f"{value / _GIB:.1f}"


def span(seconds: float) -> str:
    """The two largest units: 3 d 4 h, 2 h 05 m, 12 m."""
    minutes = max(0, int(seconds)) // 60
    hours, days = minutes // 60, minutes // 1440
    if days:
        return f"{days} d {hours % 24} h"
    return f"{hours} h {minutes % 60:02d} m" if hours else f"{minutes} m"


def _session(one: SessionLoad, _: Samples) -> str:
    return f"{one.flavor_title} ({one.server})" if one.server else one.flavor_title


def _device(one: SessionLoad, _: Samples) -> str:
    names = [device.profile or "whole GPU" for device in one.devices]
    return (
        names[0]
        if len(set(names)) == 1 and len(names) == 1
        else f"{len(names)} × {names[0]}"
        if names
        else "-"
    )


def _busy(one: SessionLoad, _: Samples) -> str | Text:
    """The mean of its devices; unknown as soon as one of them is."""
    if not one.devices:
        return "-"
    percents = [device.sm_percent for device in one.devices]
    known = [percent for percent in percents if percent is not None]
    if len(known) < len(percents):
        return UNKNOWN
    mean = sum(known) / len(known)
    filled = min(_BAR, round(mean / 100 * _BAR))
    return Text.assemble(("█" * filled, "green"), ("░" * (_BAR - filled), "dim"), f" {mean:3.0f} %")


def _memory(one: SessionLoad, _: Samples) -> str:
    if not one.devices:
        return "-"
    used = _sum([device.memory_used_bytes for device in one.devices])
    total = _sum([device.memory_total_bytes for device in one.devices])
    return f"{size(used)}/{size(total)}"


def _power(one: SessionLoad, _: Samples) -> str:
    return _number(one, lambda device: device.power_w, " W")


def _heat(one: SessionLoad, _: Samples) -> str:
    known = [device.temperature_c for device in one.devices if device.temperature_c is not None]
    return (f"{max(known):.0f} °C" if known else UNKNOWN) if one.devices else "-"


def _cpu(one: SessionLoad, _: Samples) -> str:
    if not _began(one):
        return "-"
    used, cores = one.workload.cpu_cores_used, one.workload.cpu_cores
    shown = UNKNOWN if used is None else f"{used:.1f}"
    return shown if cores is None else f"{shown}/{cores:g}"


def _ram(one: SessionLoad, _: Samples) -> str:
    if not _began(one):
        return "-"
    used, limit = one.workload.memory_used_bytes, one.workload.memory_limit_bytes
    return size(used) if limit is None else f"{size(used)}/{size(limit)}"


def _cost(one: SessionLoad, _: Samples) -> str:
    if not _began(one):
        return "-"
    return UNKNOWN if one.cost is None else f"{one.cost.quantize(Decimal('0.01'))} {one.currency}"


def _left(one: SessionLoad, _: Samples) -> str:
    return "-" if one.budget is None else _budget(one.budget, one.currency)


def _budget(budget: BudgetLeft, currency: str) -> str:
    unit = currency if budget.unit == "money" else "GPU h"
    return f"{budget.left.quantize(Decimal('0.01'))} {unit}"


def _ends(one: SessionLoad, found: Samples) -> str:
    return "-" if one.ends_at is None else f"in {span(_until(one.ends_at, found))}"


def _state(one: SessionLoad, found: Samples) -> str:
    word = {"active": "runs"}.get(one.state, one.state)
    return f"{word} {span((found.at - one.since).total_seconds())}"


def _until(moment: datetime, found: Samples) -> float:
    return (moment - found.at).total_seconds()


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _number(one: SessionLoad, of: Callable[[DeviceLoad], float | None], unit: str) -> str:
    if not one.devices:
        return "-"
    known = [value for device in one.devices if (value := of(device)) is not None]
    return f"{sum(known):.0f}{unit}" if len(known) == len(one.devices) else UNKNOWN


_COLUMNS = (
    _Column("Person", 12, 1, lambda one, _: one.user),
    _Column("Session", 22, 0, _session),
    _Column("State", 16, 6, _state),
    _Column("Device", 12, 5, _device),
    _Column("GPU busy", 15, 0, _busy),
    _Column("GPU GiB", 11, 1, _memory, right=True),
    _Column("Power", 8, 7, _power, right=True),
    _Column("Heat", 7, 8, _heat, right=True),
    _Column("CPU", 8, 3, _cpu, right=True),
    _Column("RAM GiB", 11, 4, _ram, right=True),
    _Column("Cost", 16, 2, _cost, right=True),
    _Column("Left", 16, 3, _left, right=True),
    _Column("Ends", 12, 1, _ends),
    _Column("Lease", 18, 11, lambda one, _: one.lease),
)
