"""Tables of money in terminals of any width: no id and no number is cut or broken."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any

import pytest
from allotment.budgets import Budget
from allotment.commands.budget import budget_table
from allotment.commands.leases import lease_table
from allotment.commands.usage import usage_table
from allotment.console import since
from allotment.models import Lease
from allotment.money import Usage
from rich.console import Console
from rich.table import Table

ID = "9c3dddcb46a451e0"
LONG = "a-person-with-a-rather-long-name@physics.university.example"
UNTIL = datetime(2026, 11, 30, 23, tzinfo=UTC)


def budget(**more: Any) -> Budget:
    fields = {
        "id": ID, "scope": "group", "name": "physics", "unit": "money", "amount": "500", "changes": "0",
        "used": "0.015919", "left": "499.984081", "period": "month", "since": "2026-11-01T00:00:00Z",
        "until": UNTIL, "hard": True,
    }  # fmt: skip
    return Budget.model_validate(fields | more)


def shown(table: Table, width: int) -> str:
    screen = io.StringIO()
    Console(file=screen, width=width).print(table)
    assert max(len(line) for line in screen.getvalue().splitlines()) <= width
    return screen.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_numbers_of_budgets(width: int) -> None:
    hours = budget(scope="user", name="*", unit="gpu_hours", left="-1234.567891", used="1734.567891")
    table = shown(budget_table([budget(), hours]), width)
    for part in (ID, "   499.984081", "   0.015919", "-1234.567891", "1734.567891"):
        assert part in table


@pytest.mark.parametrize("width", [80, 120])
def test_numbers_of_reports(width: int) -> None:
    keys = {"user": LONG, "group": "physics", "flavor": "gpu-10gb", "environment": "pytorch-devel"}
    row = {"key": keys, "amount": "1234.567891", "seconds": "360000", "gpu_seconds": "36000", "entries": 1234}
    report = {"total": "1234.567891", "currency": "credits", "from": UNTIL, "to": UNTIL, "rows": [row]}
    table = shown(usage_table(Usage.model_validate(report | {"group_by": tuple(keys)})), width)
    for part in ("1234.567891", "100.00 h", "10.00 h", "1234 "):
        assert part in table


@pytest.mark.parametrize("width", [80, 120])
def test_numbers_of_leases(width: int) -> None:
    fields = {
        "id": ID, "kind": "session", "user": LONG, "server": "a-second-one", "environment": "pytorch-devel",
        "flavor": "gpu-10gb", "state": "active", "active_at": UNTIL, "price_per_hour": "0.123456",
        "cost": "1234.567891", "currency": "EUR",
    }  # fmt: skip
    table = shown(lease_table([Lease.model_validate(fields)]), width)
    for part in (ID, "0.123456", "1234.567891 EUR"):
        assert part in table


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
    assert said in shown(budget_table([budget(**more)]), 200)
