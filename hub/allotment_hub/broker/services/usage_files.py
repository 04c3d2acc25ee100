"""Reports as files: CSV that no spreadsheet takes for formulas, and Parquet with exact decimals."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any, BinaryIO, Final, Literal, Protocol

from allotment_spawner.money_wire import EntryView, UsageView

__all__ = [
    "ENTRY_COLUMNS",
    "Cell",
    "Column",
    "CsvFile",
    "ParquetFile",
    "UsageFile",
    "entry_cells",
    "row_cells",
    "row_columns",
]

Kind = Literal["text", "exact", "count", "time"]
Column = tuple[str, Kind]
Cell = str | Decimal | int | datetime | None

ENTRY_COLUMNS: Final[tuple[Column, ...]] = (
    ("id", "text"),
    ("kind", "text"),
    ("owner", "text"),
    ("charged_to", "text"),
    ("lease", "text"),
    ("volume", "text"),
    ("from", "time"),
    ("to", "time"),
    ("seconds", "exact"),
    ("gpu_seconds", "exact"),
    ("amount", "exact"),
    ("currency", "text"),
    ("flavor", "text"),
    ("environment", "text"),
    ("reason", "text"),
    ("made_at", "time"),
    ("refers_to", "text"),
)
_SUMS: Final[tuple[Column, ...]] = (
    ("amount", "exact"),
    ("currency", "text"),
    ("seconds", "exact"),
    ("gpu_seconds", "exact"),
    ("entries", "count"),
)
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""How a cell begins that spreadsheets compute (OWASP, "CSV Injection"); spaces before it change nothing."""
_DIGITS: Final = 38
_PLACES: Final = 6


class UsageFile(Protocol):
    """Written front to back into a target that stays open; `close` writes what is left."""

    def add(self, rows: Sequence[Sequence[Cell]]) -> None: ...

    def close(self) -> None: ...


def entry_cells(entry: EntryView) -> list[Cell]:
    """In the order of `ENTRY_COLUMNS`."""
    return [getattr(entry, "from_" if name == "from" else name) for name, _ in ENTRY_COLUMNS]


def row_columns(group_by: Sequence[str]) -> tuple[Column, ...]:
    """Of a report's rows: what they have in common, then their sums."""
    return (*((name, "text") for name in group_by), *_SUMS)


def row_cells(report: UsageView) -> list[list[Cell]]:
    """In the order of `row_columns`."""
    return [
        [
            *(row.key[name] for name in report.group_by),
            row.amount,
            report.currency,
            row.seconds,
            row.gpu_seconds,
            row.entries,
        ]
        for row in report.rows
    ]


class CsvFile:
    """RFC 4180 in UTF-8, with a header. A text that a spreadsheet would compute gets a ' before it."""

    def __init__(self, target: BinaryIO, columns: Sequence[Column]) -> None:
        self._target = target
        self._columns = tuple(columns)
        self._write([[name for name, _ in columns]])

    def add(self, rows: Sequence[Sequence[Cell]]) -> None:
        self._write([[_text(cell) for cell in row] for row in rows])

    def close(self) -> None:
        """All is written already."""

    def _write(self, rows: Sequence[Sequence[str]]) -> None:
        page = io.StringIO(newline="")
        csv.writer(page, lineterminator="\r\n").writerows(rows)
        self._target.write(page.getvalue().encode("utf-8", "replace"))


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, Decimal):
        return format(cell, "f")
    if isinstance(cell, datetime):
        return _utc(cell)
    if isinstance(cell, int):
        return str(cell)
    return f"'{cell}" if cell.lstrip(" ").startswith(_FORMULA) else cell


def _utc(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


class ParquetFile:
    """One row group a page. Amounts and seconds are decimal128(38, 6), times microseconds in UTC."""

    def __init__(self, target: BinaryIO, columns: Sequence[Column]) -> None:
        import pyarrow as pa  # noqa: PLC0415 - large, and most brokers' days pass without such a file
        import pyarrow.parquet as pq  # noqa: PLC0415

        kinds: dict[Kind, Any] = {
            "text": pa.string(),
            "exact": pa.decimal128(_DIGITS, _PLACES),
            "count": pa.int64(),
            "time": pa.timestamp("us", tz="UTC"),
        }
        self._arrow = pa
        self._columns = tuple(columns)
        self._schema = pa.schema([(name, kinds[kind]) for name, kind in columns])
        self._writer = pq.ParquetWriter(target, self._schema)

    def add(self, rows: Sequence[Sequence[Cell]]) -> None:
        arrays = [
            self._arrow.array([_typed(row[place]) for row in rows], type=field.type)
            for place, field in enumerate(self._schema)
        ]
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))

    def close(self) -> None:
        self._writer.close()


def _typed(cell: Cell) -> Cell:
    """Arrow refuses more places than the column has; a share of a GPU (1/12) may have them."""
    if not isinstance(cell, Decimal):
        return cell
    places = Decimal(1).scaleb(-_PLACES)
    return cell.quantize(places, rounding=ROUND_HALF_EVEN, context=Context(prec=_DIGITS))
