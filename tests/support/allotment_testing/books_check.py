"""Reads the ledger behind the broker's back: nothing in it ever changes, and it sums to what was used."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from allotment_testing.money_oracle import MoneyOracle, Price

__all__ = ["BooksCheck"]

_BY_RULE = ("engine_stopped", "node_restarted", "device_mismatch")
_REFUND = timedelta(minutes=60)


class BooksCheck:
    """For prices without schedules, and refunds of the default's 60 minutes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen: dict[str, tuple[Any, ...]] = {}

    def check_unchanged(self) -> None:
        """Every entry that was there is there as it was; nobody is charged less than nothing."""
        now = {row["id"]: tuple(row) for row in self._rows("SELECT * FROM entries")}
        for entry, before in self._seen.items():
            assert now.get(entry) == before, "an entry was changed"
        for row in self._rows("SELECT kind, amount FROM entries"):
            assert row["kind"] == "refund" or Decimal(row["amount"]) >= 0
        self._seen = now

    def check_ended(self) -> None:
        """What every session that ran and ended is charged."""
        for lease in self._rows("SELECT * FROM leases WHERE state = 'ended'"):
            entries = self._rows("SELECT * FROM entries WHERE lease = ?", lease["id"])
            if lease["active_at"] is None:
                assert entries == [], "what never ran is free"
                continue
            stopped = _time(lease["stopped_at"])
            oracle = self._oracle(lease)
            back = [row for row in entries if row["key"].startswith("refund:")]
            used = [row for row in entries if row not in back]
            assert _sum(used) == _money(oracle.millionths(stopped))
            owed = oracle.millionths(stopped) - oracle.millionths(stopped - _REFUND)
            assert _sum(back) == (-_money(owed) if lease["end_reason"] in _BY_RULE else 0)

    def _oracle(self, lease: sqlite3.Row) -> MoneyOracle:
        held = {
            f"gpu:{row['gpu_uuid']}"
            for row in self._rows("SELECT * FROM devices WHERE lease = ?", lease["id"])
        }
        outages = [
            (_time(row["began_at"]), None if row["ended_at"] is None else _time(row["ended_at"]))
            for row in self._rows("SELECT * FROM outages")
            if row["what"] in {"engine", *held}
        ]
        millionths = int(Decimal(json.loads(lease["rates"])["per_hour"]) * 10**6)
        return MoneyOracle(Price("UTC", millionths, ()), _time(lease["active_at"]), outages)

    def _rows(self, query: str, *values: str) -> list[sqlite3.Row]:
        with closing(sqlite3.connect(f"file:{self._file}?mode=ro", uri=True)) as database:
            database.row_factory = sqlite3.Row
            return database.execute(query, values).fetchall()


def _sum(rows: list[sqlite3.Row]) -> Decimal:
    return sum((Decimal(row["amount"]) for row in rows), Decimal(0))


def _money(millionths: int) -> Decimal:
    return Decimal(millionths).scaleb(-6)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
