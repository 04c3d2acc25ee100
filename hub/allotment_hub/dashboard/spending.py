"""What the page of spending shows, ready to be written out: sums, their bars, budgets, entries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Final

from allotment_spawner.money_wire import BudgetView, EntryView, UsageRow

from allotment_hub.dashboard.words import hours, money

__all__ = [
    "BudgetBar",
    "EntryLine",
    "Line",
    "Piece",
    "budget_bars",
    "colours_of",
    "day_lines",
    "entry_lines",
    "lines",
    "summary",
]

WIDTH: Final = 1000
"""Of a whole bar, in the units of its drawing."""
_COLOURS: Final = 5
"""Of the style sheet; what costs less than the first five shares the one after them."""
_MOST_DAYS: Final = 62
_NO_WORD: Final = {"flavor": "Storage", "group": "No group", "user": "unknown"}
_KINDS: Final = {
    "usage": "Session",
    "storage": "Home",
    "refund": "Refund",
    "correction": "Correction",
}


@dataclass(frozen=True, slots=True)
class Piece:
    """A coloured part of a bar, from `start` on, in units of `WIDTH`."""

    start: int
    width: int
    colour: int


@dataclass(frozen=True, slots=True)
class Line:
    """One row of a table. `exact` is the amount with every digit."""

    name: str
    amount: str
    exact: str
    used: str
    gpu: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class EntryLine:
    at: datetime
    kind: str
    what: str
    owner: str
    used: str
    amount: str
    exact: str
    reason: str


@dataclass(frozen=True, slots=True)
class BudgetBar:
    """`used`: in units of `WIDTH`, never more. `tone`: ok, low or out."""

    name: str
    left: str
    limit: str
    used: int
    tone: str
    rule: str
    until: datetime | None


@dataclass(slots=True)
class _Sum:
    amount: Decimal = Decimal(0)
    seconds: Decimal = Decimal(0)
    gpu_seconds: Decimal = Decimal(0)

    def add(self, row: UsageRow) -> None:
        self.amount += row.amount
        if row.key["kind"] != "storage":  # whose seconds are no time of a session
            self.seconds += row.seconds
            self.gpu_seconds += row.gpu_seconds

    def line(self, name: str, pieces: tuple[Piece, ...]) -> Line:
        exact = format(self.amount, "f")
        return Line(name, money(self.amount), exact, hours(self.seconds), hours(self.gpu_seconds), pieces)


def summary(rows: Iterable[UsageRow]) -> Line:
    """All of them in one."""
    return _summed(rows).line("", ())


def colours_of(rows: Sequence[UsageRow]) -> dict[str, int]:
    """Flavor -> its colour: the dearest first."""
    dearest = sorted(_grouped(rows, "flavor").items(), key=lambda one: (-one[1].amount, one[0]))
    return {word: min(place, _COLOURS) for place, (word, _) in enumerate(dearest)}


def lines(
    rows: Sequence[UsageRow],
    name: str,
    *,
    titles: Mapping[str, str] | None = None,
    colours: Mapping[str, int] | None = None,
) -> tuple[Line, ...]:
    """One for each word of this key, the dearest first; their bars are measured against the first."""
    sums = sorted(_grouped(rows, name).items(), key=lambda one: (-one[1].amount, one[0]))
    most = max((one.amount for _, one in sums), default=Decimal(0))
    titled = titles or {}
    return tuple(
        one.line(
            titled.get(word, word) or _NO_WORD.get(name, ""),
            _bar([(one.amount, (colours or {}).get(word, _COLOURS))], most),
        )
        for word, one in sums
    )


def day_lines(
    rows: Sequence[UsageRow], colours: Mapping[str, int], *, first: date, last: date
) -> tuple[Line, ...]:
    """The newest first, with the days on which nothing was spent unless there are very many."""
    by_day: dict[str, list[UsageRow]] = {}
    for row in rows:
        by_day.setdefault(row.key["day"], []).append(row)
    most = max((_positive(found) for found in by_day.values()), default=Decimal(0))
    if by_day and (last - first).days < _MOST_DAYS:
        for number in range((last - first).days + 1):
            by_day.setdefault((first + timedelta(days=number)).isoformat(), [])
    found = []
    for day in sorted(by_day, reverse=True):
        parts = sorted(_grouped(by_day[day], "flavor").items(), key=lambda one: colours[one[0]])
        pieces = _bar([(one.amount, colours[word]) for word, one in parts], most)
        found.append(_summed(by_day[day]).line(f"{date.fromisoformat(day):%a} {day}", pieces))
    return tuple(found)


def budget_bars(budgets: Sequence[BudgetView], currency: str) -> tuple[BudgetBar, ...]:
    return tuple(_budget(one, currency) for one in budgets)


def _budget(one: BudgetView, currency: str) -> BudgetBar:
    limit = one.amount + one.changes
    share = Decimal(1) if limit <= 0 else min(max(one.used / limit, Decimal(0)), Decimal(1))
    names = {
        "group": f"Group {one.name}",
        "user": "Everybody's own" if one.name == "*" else f"{one.name}'s own",
    }
    # this one's, not each one's: what was added counts for it alone
    periods = {"week": "this week", "month": "this month", "term": "this term", "total": "in all"}
    tone = "out" if one.left <= 0 else "low" if share >= Decimal("0.8") else "ok"
    unit = "GPU-hours" if one.unit == "gpu_hours" else currency
    rule = "when it is used up, nothing more starts" if one.hard else "it only warns"
    return BudgetBar(
        name=names[one.scope],
        left=f"{money(one.left)} left" if one.left >= 0 else f"{money(-one.left)} overdrawn",
        limit=f"{money(limit)} {unit} {periods[one.period]}",
        used=round(share * WIDTH),
        tone=tone,
        rule=rule,
        until=one.until,
    )


def entry_lines(entries: Sequence[EntryView], titles: Mapping[str, str]) -> tuple[EntryLine, ...]:
    return tuple(
        EntryLine(
            at=one.from_,
            kind=_KINDS[one.kind],
            what=_what(one, titles),
            owner=one.owner,
            used=hours(one.seconds),
            amount=money(one.amount),
            exact=format(one.amount, "f"),
            reason=one.reason,
        )
        for one in entries
    )


def _what(entry: EntryView, titles: Mapping[str, str]) -> str:
    if entry.volume is not None:
        return f"Storage of {'the home' if entry.volume == 'home' else entry.volume}"
    flavor = titles.get(entry.flavor or "", entry.flavor or "")
    return f"{flavor}, {entry.environment}" if entry.environment else flavor


def _summed(rows: Iterable[UsageRow]) -> _Sum:
    total = _Sum()
    for row in rows:
        total.add(row)
    return total


def _grouped(rows: Iterable[UsageRow], name: str) -> dict[str, _Sum]:
    found: dict[str, _Sum] = {}
    for row in rows:
        found.setdefault(row.key[name], _Sum()).add(row)
    return found


def _positive(rows: Iterable[UsageRow]) -> Decimal:
    return sum((max(one.amount, Decimal(0)) for one in _grouped(rows, "flavor").values()), Decimal(0))


def _bar(parts: Iterable[tuple[Decimal, int]], most: Decimal) -> tuple[Piece, ...]:
    """What was given back draws nothing."""
    pieces: list[Piece] = []
    at = Decimal(0)
    for amount, colour in parts:
        if amount <= 0 or most <= 0:
            continue
        start, at = at, at + amount
        # something that was paid is seen, however little
        begin = int(start / most * WIDTH)
        pieces.append(Piece(begin, max(int(at / most * WIDTH) - begin, 4), colour))
    return tuple(pieces)
