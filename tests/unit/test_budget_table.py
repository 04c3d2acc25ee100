"""The table of `allot budget list` on terminals of any width."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import pytest
from allotment.budgets import Budget
from allotment.commands.budget import budget_table
from allotment.console import since
from rich.console import Console

ID = "9c3dddcb46a451e0"
UNTIL = datetime(2026, 11, 30, 23, tzinfo=UTC)


def budget(**more: Any) -> Budget:
    fields = {
        "id": ID, "scope": "group", "name": "physics", "unit": "money", "amount": "500", "changes": "0",
        "used": "0.015919", "left": "499.984081", "period": "month", "since": "2026-11-01T00:00:00Z",
        "until": UNTIL, "hard": True,
    }  # fmt: skip
    return Budget.model_validate(fields | more)


def shown(*budgets: Budget, width: int = 120) -> str:
    screen = io.StringIO()
    Console(file=screen, width=width).print(budget_table(list(budgets)))
    return screen.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_number_is_broken_over_two_lines(width: int) -> None:
    hours = budget(scope="user", name="*", unit="gpu_hours", left="-1234.567891", used="1734.567891")
    table = shown(budget(), hours, width=width)
    for part in (ID, "499.984081", "0.015919", "-1234.567891", "1734.567891"):
        assert part in table
    assert max(len(line) for line in table.splitlines()) <= width


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, f"500.00 by the month; hard, to {since(UNTIL)}"),
        ({"changes": "-5", "owner": "ada"}, f"with 5.00 taken away; hard, to {since(UNTIL)}; owner ada"),
        ({"unit": "gpu_hours", "period": "total", "until": None, "hard": False, "changes": "5"},
         "500.00 GPU-hours in all with 5.00 added; soft"),
        ({"closed_at": "2026-11-02T00:00:00Z", "period": "term"}, "500.00 for a term; closed"),
    ],
)  # fmt: skip
def test_what_a_budget_is_stands_in_words(more: dict[str, Any], said: str) -> None:
    assert said in shown(budget(**more), width=200)
