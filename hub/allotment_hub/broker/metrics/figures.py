"""Cells and samples as lists over a shared time axis; what is unknown is null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from allotment_hub.broker.metrics.cells import Cell
from allotment_hub.broker.metrics.fields import Field, reasons_of
from allotment_hub.broker.metrics.reading import Sample, Total
from allotment_hub.broker.services.sample_views import Figure, Figures, Overall

__all__ = ["Axis", "of_samples", "of_windows", "overall_of", "sample_axis", "window_axis"]

_GAP: float = 1.5
"""Samples further apart than this many times what they stand for have a gap between them."""
Known = tuple[Cell | None, float]


@dataclass(frozen=True, slots=True)
class Axis:
    """Times in seconds since 1970, and of each how many seconds could be known."""

    at_s: Sequence[float]
    could_s: Sequence[float]


def window_axis(from_s: float, to_s: float, step_s: int, life: tuple[float, float]) -> Axis:
    """Every window from `from_s` to `to_s`; what lies outside of `life` could not be known."""
    numbers = range(int(from_s) // step_s, -(-int(to_s) // step_s))
    low, high = max(from_s, life[0]), min(to_s, life[1])
    could = [max(0.0, min(high, (n + 1) * step_s) - max(low, n * step_s)) for n in numbers]
    return Axis([float(n * step_s) for n in numbers], could)


def of_windows(
    layout: Sequence[Field], windows: Mapping[int, Sequence[Cell | None]], axis: Axis, step_s: int
) -> Figures:
    rows = [windows.get(int(at) // step_s) for at in axis.at_s]
    figures = {}
    for index, field in enumerate(layout):
        column = [None if row is None else row[index] for row in rows]
        figures[field.name] = _figure(field, list(zip(column, axis.could_s, strict=True)))
    return figures


def sample_axis(several: Sequence[Sequence[Sample]]) -> Axis:
    """The times of all samples, and one in each gap."""
    each = {sample.at_s: sample.each_s for samples in several for sample in samples}
    at_s: list[float] = []
    for now in sorted(each):
        if at_s and now - at_s[-1] > _GAP * each[at_s[-1]]:
            at_s.append(at_s[-1] + each[at_s[-1]])
            each[at_s[-1]] = 0.0
        at_s.append(now)
    return Axis(at_s, [each[at] or 1.0 for at in at_s])


def of_samples(layout: Sequence[Field], samples: Sequence[Sample], axis: Axis) -> Figures:
    rows = {sample.at_s: sample for sample in samples}
    figures = {}
    for index, field in enumerate(layout):
        column: list[Known] = []
        for at, could_s in zip(axis.at_s, axis.could_s, strict=True):
            code = rows[at].codes[index] if at in rows else None
            value = None if code is None else field.value(code)
            column.append((None if value is None else Cell(could_s, value, value), could_s))
        figures[field.name] = _figure(field, column)
    return figures


def _figure(field: Field, column: Sequence[Known]) -> Figure:
    cells = [cell for cell, _ in column]
    missing = [_missing(cell, could_s) for cell, could_s in column]
    means = [None if cell is None else _short(cell.mean) for cell in cells]
    if field.together == "any":
        seen = [None if cell is None else list(reasons_of(int(cell.mean))) for cell in cells]
        return Figure(unit=field.unit, seen=seen, missing=missing)
    if field.together == "sum":
        return Figure(unit=field.unit, sum=means, missing=missing)
    tops = [None if cell is None else _short(cell.top) for cell in cells]
    return Figure(unit=field.unit, mean=means, max=tops, missing=missing)


def _missing(cell: Cell | None, could_s: float) -> float:
    if cell is None or could_s <= 0:
        return 1.0
    return round(max(0.0, 1 - cell.known_s / could_s), 3)


def overall_of(layout: Sequence[Field], total: Total | None) -> dict[str, Overall]:
    """Only what was ever known."""
    if total is None:
        return {}
    cells = zip(layout, total.cells, strict=True)
    return {field.name: _overall(field, cell) for field, cell in cells if cell is not None}


def _overall(field: Field, cell: Cell) -> Overall:
    known_s = round(cell.known_s, 1)
    if field.together == "any":
        return Overall(unit=field.unit, known_s=known_s, seen=list(reasons_of(int(cell.mean))))
    if field.together == "sum":
        return Overall(unit=field.unit, known_s=known_s, sum=_short(cell.mean))
    return Overall(unit=field.unit, known_s=known_s, mean=_short(cell.mean), max=_short(cell.top))


def _short(value: float) -> float:
    """No more digits than were kept."""
    return float(f"{value:.6g}") if abs(value) < 1e6 else float(round(value))
