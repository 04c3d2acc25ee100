"""Writes rounds into the file and rolls them up into minutes and hours; each step is one transaction."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from allotment_hub.broker.metrics.cells import (
    Cell,
    from_columns,
    from_text,
    of_samples,
    to_columns,
    to_text,
    together,
)
from allotment_hub.broker.metrics.fields import LAYOUTS, Field, Kind
from allotment_hub.broker.metrics.layout import MINUTES, Level, Shelf, key_of, number_of, subject_of
from allotment_hub.broker.metrics.packing import Row, Unreadable, pack, unpack
from allotment_hub.broker.metrics.recording import Recorded

__all__ = ["Writer", "opened", "readable"]

_TENTHS: Final = 10
_CHUNK: Final = 100
"""Subjects rolled up in one transaction, so that a round never waits long."""


class Writer:
    """All writes of one open file. Whatever is interrupted is done again from what is there."""

    def __init__(
        self, connection: sqlite3.Connection, *, on_step: Callable[[str], None] = lambda _step: None
    ) -> None:
        self._connection = connection
        self._on_step = on_step
        self._ids: dict[tuple[Kind, str], int] = {}
        self._kinds: dict[int, Kind] = {}

    @contextmanager
    def _transaction(self, what: str) -> Iterator[sqlite3.Connection]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection
            self._on_step(f"metrics {what} before the commit")
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            # ids given away in it do not exist
            self._ids.clear()
            raise
        self._on_step(f"metrics {what} after the commit")

    def add(self, at_s: float, each_s: float, rows: Sequence[Recorded]) -> None:
        """One round at `at_s` (seconds since 1970) that stands for `each_s` seconds."""
        with self._transaction("round") as connection:
            coded = [[self._subject(kind, name), *codes] for kind, name, codes in rows]
            text = json.dumps(coded, separators=(",", ":")).encode()
            connection.execute(
                "INSERT OR REPLACE INTO rounds VALUES (?, ?, ?)",
                (round(at_s * _TENTHS), round(each_s * _TENTHS), zlib.compress(text, 1)),
            )

    def _subject(self, kind: Kind, name: str) -> int:
        known = self._ids.get((kind, name))
        if known is None:
            connection = self._connection
            connection.execute("INSERT OR IGNORE INTO subjects (kind, name) VALUES (?, ?)", (kind, name))
            found = connection.execute("SELECT id FROM subjects WHERE kind = ? AND name = ?", (kind, name))
            known = self._ids[kind, name] = int(found.fetchone()[0])
        return known

    def _layout(self, subject: int) -> Sequence[Field] | None:
        """None: it was forgotten meanwhile."""
        if subject not in self._kinds:
            self._kinds = dict(self._connection.execute("SELECT id, kind FROM subjects"))
        kind = self._kinds.get(subject)
        return None if kind is None else LAYOUTS[kind]

    def roll_minute(self, now_s: float) -> bool:
        """The oldest minute that is not the present one, from its rounds; False when there is none."""
        present = int(now_s) // 60
        start = 600 * present
        [first] = self._connection.execute(
            "SELECT min(at) FROM rounds WHERE at < ? OR at >= ?", (start, start + 600)
        ).fetchone()
        if first is None:
            return False
        minute = int(first) // 600
        with self._transaction("minute") as connection:
            found = connection.execute(
                "SELECT at, each, rows FROM rounds WHERE at >= ? AND at < ? ORDER BY at",
                (600 * minute, 600 * minute + 600),
            ).fetchall()
            for subject, rows in _by_subject(found, minute).items():
                self._keep_minute(subject, minute, rows)
            connection.execute(
                "DELETE FROM rounds WHERE at >= ? AND at < ?", (600 * minute, 600 * minute + 600)
            )
        return True

    def _keep_minute(self, subject: int, minute: int, rows: list[Row]) -> None:
        layout = self._layout(subject)
        if layout is None:
            return
        self._add_total(subject, layout, minute, _cells(layout, rows))
        key = key_of(Shelf.RAW, minute, subject)
        earlier = self._block(key)
        if earlier:  # a minute comes twice when the clock is set back
            rows = _joined(earlier, rows)
        self._put(key, rows)
        fresh = key_of(Shelf.FRESH_MINUTES, minute, subject)
        self._put(fresh, [[minute, *to_columns(layout, _cells(layout, rows))]])

    def _add_total(
        self, subject: int, layout: Sequence[Field], minute: int, cells: list[Cell | None]
    ) -> None:
        found = self._connection.execute(
            "SELECT from_s, to_s, cells FROM totals WHERE subject = ?", (subject,)
        ).fetchone()
        from_s, to_s = 60 * minute, 60 * minute + 60
        if found is not None:
            from_s, to_s = min(from_s, found[0]), max(to_s, found[1])
            earlier = from_text(layout, found[2])
            if earlier is not None:
                cells = together(layout, [earlier, cells])
        self._connection.execute(
            "INSERT OR REPLACE INTO totals VALUES (?, ?, ?, ?)",
            (subject, from_s, to_s, to_text(cells)),
        )

    def roll_block(self, level: Level, now_s: float) -> bool:
        """Some subjects of the oldest block of this level that is over; False when there is none."""
        present = level.per_block * (int(now_s) // level.block_s)
        first = self._first(level.fresh, 0, present)
        if first is None:
            first = self._first(level.fresh, present + level.per_block, None)
        if first is None:
            return False
        block = number_of(first) // level.per_block
        with self._transaction(level.name):
            for subject, rows in self._take_fresh(level, block).items():
                self._keep_block(level, block, subject, rows)
        return True

    def _first(self, shelf: Shelf, number: int, before: int | None) -> int | None:
        """The first key from row `number` on."""
        end = key_of(shelf, before) if before is not None else key_of(shelf, 1 << 28)
        [key] = self._connection.execute(
            "SELECT min(key) FROM blocks WHERE key >= ? AND key < ?", (key_of(shelf, number), end)
        ).fetchone()
        return None if key is None else int(key)

    def _take_fresh(self, level: Level, block: int) -> dict[int, list[Row]]:
        """Fresh rows of the lowest subjects of this block, a chunk of them, taken out."""
        numbers = range(level.per_block * block, level.per_block * (block + 1))
        firsts = [self._first(level.fresh, number, number + 1) for number in numbers]
        low = min(subject_of(key) for key in firsts if key is not None)
        rows: dict[int, list[Row]] = {}
        for number in numbers:
            keys = (key_of(level.fresh, number, low), key_of(level.fresh, number, low + _CHUNK))
            found = self._connection.execute(
                "SELECT key, packed FROM blocks WHERE key >= ? AND key < ?", keys
            )
            for key, packed in found:
                rows.setdefault(subject_of(key), []).extend(readable(packed))
            self._connection.execute("DELETE FROM blocks WHERE key >= ? AND key < ?", keys)
        return rows

    def _keep_block(self, level: Level, block: int, subject: int, rows: list[Row]) -> None:
        layout = self._layout(subject)
        if not rows or layout is None:
            return
        key = key_of(level.shelf, block, subject)
        earlier = self._block(key)
        if earlier:
            rows = _joined(earlier, rows)
        self._put(key, rows)
        if level is MINUTES:
            hour = together(layout, [from_columns(layout, row[1:]) for row in rows])
            self._put(key_of(Shelf.FRESH_HOURS, block, subject), [[block, *to_columns(layout, hour)]])

    def _block(self, key: int) -> list[Row]:
        found = self._connection.execute("SELECT packed FROM blocks WHERE key = ?", (key,)).fetchone()
        return [] if found is None else readable(found[0])

    def _put(self, key: int, rows: Sequence[Row]) -> None:
        self._connection.execute("INSERT OR REPLACE INTO blocks VALUES (?, ?)", (key, pack(rows)))

    def prune(self, shelf: Shelf, before: int) -> bool:
        """The oldest block before block `before` since 1970; False when there is none."""
        first = self._first(shelf, 0, before)
        if first is None:
            return False
        with self._transaction(f"pruning of {shelf.name.lower()}") as connection:
            until = key_of(shelf, number_of(first) + 1)
            connection.execute("DELETE FROM blocks WHERE key >= ? AND key < ?", (key_of(shelf, 0), until))
        return True

    def forget(self, before_s: float) -> None:
        """Subjects of which nothing was heard since then."""
        with self._transaction("forgetting") as connection:
            connection.execute(
                "DELETE FROM subjects WHERE id IN (SELECT subject FROM totals WHERE to_s < ?)",
                (int(before_s),),
            )
            connection.execute("DELETE FROM totals WHERE to_s < ?", (int(before_s),))
        self._ids.clear()
        self._kinds.clear()


def _by_subject(found: Sequence[tuple[int, int, bytes]], minute: int) -> dict[int, list[Row]]:
    """Rows (tenths into the minute, tenths it stands for, codes) of each subject."""
    rows: dict[int, list[Row]] = {}
    for at, each, squeezed in found:
        for subject, *codes in opened(squeezed):
            rows.setdefault(subject, []).append([at - 600 * minute, each, *codes])
    return rows


def opened(squeezed: bytes) -> list[list[int]]:
    """A whole round: (subject, codes …); one that cannot be read any more is missing."""
    try:
        rows: list[list[int]] = json.loads(zlib.decompress(squeezed))
    except (zlib.error, ValueError):
        return []
    return rows


def _cells(layout: Sequence[Field], rows: Sequence[Row]) -> list[Cell | None]:
    """A broker that was started anew with another interval has samples of both in one minute."""
    alike: dict[int, list[Row]] = {}
    for row in rows:
        alike.setdefault(row[1] or 0, []).append(row[2:])
    several = [
        of_samples(layout, codes, each_s=each / _TENTHS, step_s=MINUTES.step_s)
        for each, codes in alike.items()
    ]
    if len(several) == 1:
        return several[0]
    step_s = max(_TENTHS * MINUTES.step_s, *alike) / _TENTHS
    return [cell and replace(cell, known_s=min(step_s, cell.known_s)) for cell in together(layout, several)]


def _joined(earlier: Sequence[Row], later: Sequence[Row]) -> list[Row]:
    """By their own number, the later one of two."""
    rows = {row[0]: row for row in (*earlier, *later)}
    return [rows[number] for number in sorted(rows, key=lambda one: one or 0)]


def readable(packed: bytes) -> list[Row]:
    """What cannot be read any more is missing."""
    try:
        return list(unpack(packed))
    except Unreadable:
        return []
