"""The page of spending: one report, where its links lead, and what it offers as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final, Literal
from urllib.parse import urlencode

from allotment_spawner.money_wire import BudgetView, EntryView, UsageView

from allotment_hub.dashboard.spending import (
    BudgetBar,
    EntryLine,
    Line,
    budget_bars,
    colours_of,
    day_lines,
    entry_lines,
    lines,
    summary,
)
from allotment_hub.dashboard.words import money

__all__ = ["GROUPED", "GROUPED_ALL", "Choice", "SpendingPage", "spending_page"]

GROUPED: Final = ("day", "flavor", "kind")
GROUPED_ALL: Final = (*GROUPED, "user", "group")
"""How a report is grouped that the page is made of."""
Link = tuple[str, str, bool]


@dataclass(frozen=True, slots=True)
class Choice:
    """What the person asked to see. `whose`: their own, everybody's (operators), or what was charged to
    `group`. `last` is the last day, and belongs to it; `today` is today's in the books' zone."""

    person: str
    whose: Literal["mine", "all", "group"]
    user: str
    group: str
    first: date
    last: date
    today: date

    def address(self, **changes: object) -> str:
        """Of the page with some of it changed."""
        asked = {
            "whose": self.whose,
            "user": self.user,
            "group": self.group,
            "from": self.first,
            "to": self.last,
        }
        told = {name: str(value) for name, value in (asked | changes).items() if value}
        if told["whose"] == "mine":
            del told["whose"]
        return "usage?" + urlencode(told)

    def file(self, **more: str) -> str:
        """Of the same as a file; the interface's `to` is the day after."""
        asked = {
            "from": self.first,
            "to": self.last + timedelta(days=1),
            "user": self.user,
            "group": self.group,
        }
        if self.whose == "mine":
            asked["user"] = self.person
        return "api/v1/usage?" + urlencode(
            {key: str(value) for key, value in (asked | more).items() if value}
        )


@dataclass(frozen=True, slots=True)
class SpendingPage:
    whose: str
    user: str
    group: str
    currency: str
    zone: str
    first: date
    last: date
    heading: str
    sum: Line
    running: str | None
    days: tuple[Line, ...]
    flavors: tuple[Line, ...]
    people: tuple[Line, ...]
    groups: tuple[Line, ...]
    budgets: tuple[BudgetBar, ...]
    entries: tuple[EntryLine, ...]
    count: int
    tabs: tuple[Link, ...]
    presets: tuple[Link, ...]
    downloads: tuple[tuple[str, str], ...]
    other_currencies: tuple[str, ...]


def spending_page(
    choice: Choice,
    report: UsageView,
    entries: Sequence[EntryView],
    *,
    zone: str,
    titles: Mapping[str, str],
    budgets: Sequence[BudgetView],
    minded: Sequence[str],
    operator: bool,
) -> SpendingPage:
    """`report` by `GROUPED`, or `GROUPED_ALL` where several people may be in it; `entries` the newest ones,
    newest first; `titles`: flavor -> title; `minded`: groups whose budgets the person owns."""
    colours = colours_of(report.rows)
    several = "user" in report.group_by
    return SpendingPage(
        whose=choice.whose,
        user=choice.user,
        group=choice.group,
        currency=report.currency,
        zone=zone,
        first=choice.first,
        last=choice.last,
        heading=_heading(choice),
        sum=summary(report.rows),
        running=money(report.running) if report.running else None,
        days=day_lines(report.rows, colours, first=choice.first, last=min(choice.last, choice.today)),
        flavors=lines(report.rows, "flavor", titles=titles, colours=colours),
        people=lines(report.rows, "user") if several else (),
        groups=lines(report.rows, "group") if several and not choice.group else (),
        budgets=budget_bars(budgets, report.currency),
        entries=entry_lines(entries, titles),
        count=sum(row.entries for row in report.rows),
        tabs=_tabs(choice, minded, operator=operator),
        presets=_presets(choice),
        downloads=_downloads(choice, several=several),
        other_currencies=report.other_currencies,
    )


def _heading(choice: Choice) -> str:
    days = f"{choice.first} to {choice.last}" if choice.first != choice.last else f"{choice.first}"
    if choice.whose == "group":
        return f"Charged to {choice.group}, {days}"
    if choice.whose == "mine":
        return f"Your sessions and files, {days}"
    who = choice.user or "Everybody"
    return f"{who}, charged to {choice.group}, {days}" if choice.group else f"{who}, {days}"


def _tabs(choice: Choice, minded: Sequence[str], *, operator: bool) -> tuple[Link, ...]:
    found = [("Mine", choice.address(whose="mine", user="", group=""), choice.whose == "mine")]
    if operator:
        found.append(("Everybody", choice.address(whose="all", user="", group=""), choice.whose == "all"))
    for name in minded:
        shown = choice.whose == "group" and choice.group == name
        found.append((f"Group {name}", choice.address(whose="group", user="", group=name), shown))
    return tuple(found)


def _presets(choice: Choice) -> tuple[Link, ...]:
    today = choice.today
    month = today.replace(day=1)
    before = (month - timedelta(days=1)).replace(day=1)
    spans = (
        ("Last 7 days", today - timedelta(days=6), today),
        ("This month", month, (month + timedelta(days=31)).replace(day=1) - timedelta(days=1)),
        ("Last month", before, month - timedelta(days=1)),
    )
    return tuple(
        (title, choice.address(**{"from": first, "to": last}), (first, last) == (choice.first, choice.last))
        for title, first, last in spans
    )


def _downloads(choice: Choice, *, several: bool) -> tuple[tuple[str, str], ...]:
    grouped = "day,user,group,flavor" if several else "day,flavor"
    return (
        ("Entries, CSV", choice.file(format="csv")),
        ("Entries, Parquet", choice.file(format="parquet")),
        ("Entries, JSON", choice.file()),
        ("By day and size, CSV", choice.file(format="csv", group_by=grouped)),
    )
