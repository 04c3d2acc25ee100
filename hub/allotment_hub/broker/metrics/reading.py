"""Reads series of one subject back from the file, through a connection of its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from allotment_hub.broker.metrics.cells import Cell, from_columns, from_text, together
from allotment_hub.broker.metrics.fields import LAYOUTS, Field, Kind
from allotment_hub.broker.metrics.layout import HOURS, MINUTES, RAW_BLOCK_S, Level, Shelf, key_of, number_of
from allotment_hub.broker.metrics.packing import Row
from allotment_hub.broker.metrics.writing import opened, readable

__all__ = ["Reader", "Sample", "Total"]

_TENTHS: Final = 10
_MINUTE_S: Final = 60
Cells = Sequence[Cell | None]


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample as it was taken: seconds since 1970, the seconds it stands for, its codes."""

    at_s: float
    each_s: float
    codes: Sequence[int | None]


@dataclass(frozen=True, slots=True)
class Total:
    """All that was ever kept of a subject, between these seconds since 1970."""

    from_s: int
    to_s: int
    cells: Cells


class Reader:
    """One open file as it was at the first look, read only; many may read while one writes."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    @contextmanager
    def of(cls, path: Path) -> Iterator[Reader | None]:
        """None when there is no file yet."""
        if not path.exists():
            yield None
            return
        with closing(
            sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=5.0, isolation_level=None)
        ) as connection:
            # what is rolled up between two looks would be seen in neither place
            connection.execute("BEGIN")
            yield cls(connection)

    def total(self, kind: Kind, name: str) -> Total | None:
        """Up to the last minute that is over."""
        found = self._connection.execute(
            "SELECT from_s, to_s, cells FROM totals JOIN subjects ON id = subject"
            " WHERE kind = ? AND name = ?",
            (kind, name),
        ).fetchone()
        cells = None if found is None else from_text(LAYOUTS[kind], found[2])
        return None if cells is None else Total(found[0], found[1], cells)

    def samples(self, kind: Kind, name: str, from_s: float, to_s: float) -> list[Sample]:
        """Each sample of this time, oldest first."""
        subject = self._subject(kind, name)
        if subject is None:
            return []
        found: list[Sample] = []
        for minute, rows in self._blocks(Shelf.RAW, RAW_BLOCK_S, subject, from_s, to_s):
            for offset, each, *codes in rows:
                at_s = _MINUTE_S * minute + (offset or 0) / _TENTHS
                found.append(Sample(at_s, (each or 0) / _TENTHS, codes))
        found += self._not_rolled_up(subject, from_s, to_s)
        low_s = from_s - 0.5 / _TENTHS  # times are kept in tenths of a second
        inside = (one for one in found if low_s <= one.at_s < to_s)
        return sorted(inside, key=lambda one: one.at_s)

    def _not_rolled_up(self, subject: int, from_s: float, to_s: float) -> Iterator[Sample]:
        tenths = (int(from_s * _TENTHS) - 1, int(to_s * _TENTHS) + 1)
        rounds = self._connection.execute(
            "SELECT at, each, rows FROM rounds WHERE at BETWEEN ? AND ?", tenths
        )
        for at, each, squeezed in rounds:
            for number, *codes in opened(squeezed):
                if number == subject:
                    yield Sample(at / _TENTHS, each / _TENTHS, codes)

    def windows(
        self, kind: Kind, name: str, from_s: float, to_s: float, step_s: int, *, inside: bool = False
    ) -> Mapping[int, Cells]:
        """Number of the window since 1970 (each `step_s` long, a multiple of 60) -> its cells; those of
        which nothing is known are left out. Minutes serve what the hours do not hold yet. `inside`: of
        minutes and hours that lie in this time as a whole only."""
        subject = self._subject(kind, name)
        if subject is None:
            return {}
        layout = LAYOUTS[kind]
        rows: dict[int, list[Cells]] = {}
        whole: set[int] = set()
        if step_s % HOURS.step_s == 0:
            for hour, cells in self._rows(HOURS, subject, layout, from_s, to_s):
                if not inside or _lies_in(HOURS, hour, from_s, to_s):
                    whole.add(hour)
                    rows.setdefault(hour * HOURS.step_s // step_s, []).append(cells)
        for minute, cells in self._rows(MINUTES, subject, layout, from_s, to_s):
            taken = not inside or _lies_in(MINUTES, minute, from_s, to_s)
            if taken and minute // _MINUTE_S not in whole:
                rows.setdefault(minute * _MINUTE_S // step_s, []).append(cells)
        return {number: together(layout, several) for number, several in sorted(rows.items())}

    def _rows(
        self, level: Level, subject: int, layout: Sequence[Field], from_s: float, to_s: float
    ) -> Iterator[tuple[int, Cells]]:
        """(number of the row since 1970, its cells), each once."""
        found: dict[int, Row] = {}
        for _, rows in self._blocks(level.shelf, level.block_s, subject, from_s, to_s):
            found.update({row[0] or 0: row for row in rows})
        for number in self._fresh_numbers(level, from_s, to_s):
            if number not in found:
                for row in self._fresh(level, number, subject):
                    found[number] = row
        for number, row in sorted(found.items()):
            if from_s - level.step_s < number * level.step_s < to_s:
                yield number, from_columns(layout, row[1:])

    def _fresh_numbers(self, level: Level, from_s: float, to_s: float) -> range:
        """Only the last block is not packed yet: to look for each minute of two years takes seconds."""
        low, high = int(from_s) // level.step_s, -(-int(to_s) // level.step_s)
        keys = (key_of(level.fresh, low), key_of(level.fresh, high))
        # one by one each is a single step in the tree
        first, last = self._connection.execute(
            "SELECT (SELECT min(key) FROM blocks WHERE key >= ? AND key < ?),"
            " (SELECT max(key) FROM blocks WHERE key >= ? AND key < ?)",
            keys * 2,
        ).fetchone()
        return range(0) if first is None else range(number_of(first), number_of(last) + 1)

    def _fresh(self, level: Level, number: int, subject: int) -> list[Row]:
        return self._at(key_of(level.fresh, number, subject))

    def _blocks(
        self, shelf: Shelf, block_s: int, subject: int, from_s: float, to_s: float
    ) -> Iterator[tuple[int, list[Row]]]:
        for number in range(int(from_s) // block_s, int(to_s) // block_s + 1):
            rows = self._at(key_of(shelf, number, subject))
            if rows:
                yield number, rows

    def _at(self, key: int) -> list[Row]:
        found = self._connection.execute("SELECT packed FROM blocks WHERE key = ?", (key,)).fetchone()
        return [] if found is None else readable(found[0])

    def _subject(self, kind: Kind, name: str) -> int | None:
        found = self._connection.execute(
            "SELECT id FROM subjects WHERE kind = ? AND name = ?", (kind, name)
        ).fetchone()
        return None if found is None else int(found[0])


def _lies_in(level: Level, number: int, from_s: float, to_s: float) -> bool:
    return from_s <= number * level.step_s and (number + 1) * level.step_s <= to_s
