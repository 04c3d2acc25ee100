"""What the page of spending makes of a report: words, bars, days, budgets, addresses."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal

import pytest
from allotment_hub.dashboard.spending import budget_bars, colours_of, day_lines, lines, summary
from allotment_hub.dashboard.spending_page import Choice, spending_page
from allotment_hub.dashboard.words import hours, money
from allotment_spawner.money_wire import BudgetView, UsageRow, UsageView

MARCH = date(2030, 3, 1)


def row(
    amount: str, *, day: str = "2030-03-01", flavor: str = "cpu", kind: str = "usage", **more: str
) -> UsageRow:
    key = {"day": day, "flavor": flavor, "kind": kind} | more
    return UsageRow(
        key=key, amount=Decimal(amount), seconds=Decimal(3600), gpu_seconds=Decimal(900), entries=1
    )


def choice(whose: Literal["mine", "all", "group"] = "mine", **more: Any) -> Choice:
    fields: dict[str, Any] = {
        "person": "ann", "whose": whose, "user": "", "group": "", "first": MARCH, "last": date(2030, 3, 31),
        "today": date(2030, 3, 12),
    }  # fmt: skip
    return Choice(**(fields | more))


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        ("0", "0.00"), ("0E-6", "0.00"), ("1234.5", "1,234.50"), ("-0.25", "-0.25"), ("0.004217", "0.004217"),
        ("0.000100", "0.0001"), ("-0.000001", "-0.000001"), ("0.01", "0.01"),
    ],
)  # fmt: skip
def test_amounts(amount: str, words: str) -> None:
    assert money(Decimal(amount)) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        ("0", "0"),
        ("0.5", "< 1 min"),
        ("59", "1 min"),
        ("3599", "60 min"),
        ("3600", "1.0 h"),
        ("-7200", "-2.0 h"),
    ],
)
def test_times(seconds: str, words: str) -> None:
    assert hours(Decimal(seconds)) == words


def test_bars_are_measured_against_the_dearest() -> None:
    rows = [row("1", flavor="a"), row("3", flavor="b"), row("-1", flavor="c", kind="refund")]
    found = lines(rows, "flavor", titles={"b": "Big"}, colours=colours_of(rows))
    assert [(one.name, one.amount, one.pieces[0].width if one.pieces else 0) for one in found] == [
        ("Big", "3.00", 1000), ("a", "1.00", 333), ("c", "-1.00", 0),
    ]  # fmt: skip
    assert [one.pieces[0].colour for one in found if one.pieces] == [0, 1]


def test_many_sizes_share_the_last_colour() -> None:
    found = colours_of([row(str(9 - number), flavor=f"f{number}") for number in range(8)])
    assert [found[f"f{number}"] for number in range(8)] == [0, 1, 2, 3, 4, 5, 5, 5]


def test_days_without_spending_are_days_too_and_parts_join() -> None:
    rows = [row("1", flavor="a"), row("1", flavor="b"), row("0.5", day="2030-03-03", flavor="b")]
    found = day_lines(rows, colours_of(rows), first=MARCH, last=date(2030, 3, 3))
    assert [(one.name, one.amount) for one in found] == [
        ("Sun 2030-03-03", "0.50"), ("Sat 2030-03-02", "0.00"), ("Fri 2030-03-01", "2.00"),
    ]  # fmt: skip
    first = found[-1].pieces
    assert first[0].start == 0
    assert first[0].width + first[1].width == 1000
    assert first[1].start == first[0].width
    years = day_lines(rows, colours_of(rows), first=date(2020, 1, 1), last=date(2030, 3, 3))
    assert len(years) == 2


def test_storage_is_no_time_of_a_session() -> None:
    found = summary([row("1"), row("1", flavor="", kind="storage")])
    assert (found.exact, found.used, found.gpu) == ("2", "1.0 h", "15 min")
    assert lines([row("1", flavor="", kind="storage")], "flavor")[0].name == "Storage"


@pytest.mark.parametrize(
    ("used", "tone", "drawn", "left"),
    [
        ("0", "ok", 0, "10.00 left"),
        ("7.9", "ok", 790, "2.10 left"),
        ("8", "low", 800, "2.00 left"),
        ("10", "out", 1000, "0.00 left"),
        ("12", "out", 1000, "2.00 overdrawn"),
        ("-1", "ok", 0, "11.00 left"),
    ],
)
def test_budgets(used: str, tone: str, drawn: int, left: str) -> None:
    budget = BudgetView(
        id="b", scope="group", name="physics", unit="gpu_hours", amount=Decimal(8), changes=Decimal(2),
        used=Decimal(used), left=10 - Decimal(used), period="week", starts_on=None, ends_on=None,
        since=datetime(2030, 3, 4, tzinfo=UTC), until=datetime(2030, 3, 11, tzinfo=UTC), hard=False,
        owner=None, note="",
    )  # fmt: skip
    (found,) = budget_bars([budget], "EUR")
    assert (found.tone, found.used, found.left) == (tone, drawn, left)
    assert found.limit == "10.00 GPU-hours this week", "of which 2 were added for this week alone"
    (found,) = budget_bars([budget.model_copy(update={"unit": "money", "period": "total"})], "EUR")
    assert found.limit == "10.00 EUR in all"


def test_addresses_keep_what_was_chosen() -> None:
    one = choice("all", user="a&b=c", group="x y")
    assert one.address() == "usage?whose=all&user=a%26b%3Dc&group=x+y&from=2030-03-01&to=2030-03-31"
    assert one.address(whose="mine", user="", group="") == "usage?from=2030-03-01&to=2030-03-31"
    assert one.file(format="csv") == (
        "api/v1/usage?from=2030-03-01&to=2030-04-01&user=a%26b%3Dc&group=x+y&format=csv"
    )
    assert "user=ann" in choice("mine").file()


def test_the_page_shows_no_day_that_has_not_come() -> None:
    report = UsageView(
        total=Decimal(1), currency="EUR", from_=datetime(2030, 3, 1, tzinfo=UTC),
        to=datetime(2030, 4, 1, tzinfo=UTC), group_by=("day", "flavor", "kind"), rows=(row("1"),), entries=(),
        running=Decimal(0), other_currencies=("DM",),
    )  # fmt: skip
    page = spending_page(
        choice(), report, [], zone="UTC", titles={}, budgets=[], minded=["art"], operator=False
    )
    assert [len(page.days), page.days[0].name, page.running, page.count] == [12, "Tue 2030-03-12", None, 1]
    assert [(title, on) for title, _, on in page.tabs] == [("Mine", True), ("Group art", False)]
    assert [on for _, _, on in page.presets] == [False, True, False]
    assert (page.people, page.groups, page.other_currencies) == ((), (), ("DM",))
