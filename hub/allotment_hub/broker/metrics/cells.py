"""A stretch of time as one row: for each figure how long it was known, its mean and its maximum."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from allotment_hub.broker.metrics.fields import Field

__all__ = ["Cell", "from_columns", "of_samples", "together", "to_columns"]

_TENTHS: Final = 10


@dataclass(frozen=True, slots=True)
class Cell:
    """Of one figure: seconds for which it was known, its mean, and its maximum.

    For sums `mean` is the sum, for bits it is all that were set; `top` is the same then.
    """

    known_s: float
    mean: float
    top: float


def of_samples(
    layout: Sequence[Field], samples: Sequence[Sequence[int | None]], *, each_s: float, step_s: float
) -> list[Cell | None]:
    """Codes of samples that stand for `each_s` seconds each, as one cell a figure; None: unknown. One sample
    may stand for more than a step: then the steps after it have none, and this one is known for longer."""
    return [
        _one(field, [code for code in column if code is not None], each_s, step_s)
        for field, column in zip(layout, zip(*samples, strict=True), strict=True)
    ]


def _one(field: Field, codes: list[int], each_s: float, step_s: float) -> Cell | None:
    if not codes:
        return None
    known_s = min(max(step_s, each_s), len(codes) * each_s)
    if codes.count(codes[0]) == len(codes) and field.together == "mean":
        value = field.value(codes[0])
        return Cell(known_s, value, value)
    if field.together == "any":
        return _bits(known_s, codes)
    values = [field.value(code) for code in codes]
    total = sum(values)
    if field.together == "sum":
        return Cell(known_s, total, total)
    return Cell(known_s, total / len(values), max(values))


def _bits(known_s: float, masks: Iterable[int]) -> Cell:
    bits = 0
    for mask in masks:
        bits |= mask
    return Cell(known_s, bits, bits)


def together(layout: Sequence[Field], rows: Sequence[Sequence[Cell | None]]) -> list[Cell | None]:
    """Several stretches as one. Means are weighted by how long each was known."""
    return [
        _merged(field, [cell for cell in column if cell is not None])
        for field, column in zip(layout, zip(*rows, strict=True), strict=True)
    ]


def _merged(field: Field, cells: list[Cell]) -> Cell | None:
    if len(cells) < 2:
        return cells[0] if cells else None
    known_s = sum(cell.known_s for cell in cells)
    if field.together == "any":
        return _bits(known_s, (int(cell.mean) for cell in cells))
    if field.together == "sum":
        total = sum(cell.mean for cell in cells)
        return Cell(known_s, total, total)
    weighed = sum(cell.mean * cell.known_s for cell in cells)
    mean = weighed / known_s if known_s else cells[0].mean
    return Cell(known_s, mean, max(cell.top for cell in cells))


def to_columns(layout: Sequence[Field], row: Sequence[Cell | None]) -> list[int | None]:
    """Three codes a figure (tenths of seconds known, mean, maximum above the mean), two for sums and bits."""
    codes: list[int | None] = []
    for field, cell in zip(layout, row, strict=True):
        single = field.together != "mean"
        if cell is None:
            codes += [None, None] if single else [None, None, None]
            continue
        mean = field.code(cell.mean)
        codes += [round(cell.known_s * _TENTHS), mean]
        if not single:
            codes.append(field.code(cell.top) - mean)
    return codes


def from_columns(layout: Sequence[Field], codes: Sequence[int | None]) -> list[Cell | None]:
    """The inverse of `to_columns`."""
    row: list[Cell | None] = []
    left = iter(codes)
    for field in layout:
        known, mean = next(left), next(left)
        above = next(left) if field.together == "mean" else 0
        if known is None or mean is None or above is None:
            row.append(None)
        else:
            row.append(Cell(known / _TENTHS, field.value(mean), field.value(mean + above)))
    return row


def to_text(row: Sequence[Cell | None]) -> str:
    """For a row that is added to again and again: coded each time, a long mean would never move."""
    numbers = [cell and [round(cell.known_s, 1), float(f"{cell.mean:.12g}"), cell.top] for cell in row]
    return json.dumps(numbers, separators=(",", ":"))


def from_text(layout: Sequence[Field], text: str) -> list[Cell | None] | None:
    """The inverse of `to_text`; None when this is no such text."""
    try:
        row = [cell and Cell(*map(float, cell)) for cell in json.loads(text)]
    except (TypeError, ValueError):
        return None
    return row if len(row) == len(layout) else None
