"""Which budget a running session will meet first."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, DecimalException
from typing import Any

__all__ = ["tightest"]


def tightest(budgets: Sequence[Any], *, user: str | None, charged_to: str | None) -> dict[str, Any] | None:
    """{"title", "left", "limit", "unit", "hard", "until"} of the hard budget with the smallest part left,
    else of the tightest soft one; None where nothing limits this session, or what was told is not known.

    It meets the budgets of its person, `user`, and of the group `charged_to`; an operator is told of others'
    too. Amounts are exact decimals as text.
    """
    concerned = {("user", "*"), ("user", user), ("group", charged_to)}
    known = [one for one in map(_read, budgets) if one is not None]
    found = [one for one in known if (one["scope"], one["name"]) in concerned]
    found.sort(key=lambda one: (not one["hard"], one["share"]))
    if not found:
        return None
    first = found[0]
    return {key: first[key] for key in ("title", "left", "limit", "unit", "hard", "until")}


def _read(told: Any) -> dict[str, Any] | None:
    """A newer broker may tell more, and in another shape: that must not take the status bar away."""
    try:
        left, limit = Decimal(told["left"]), Decimal(told["amount"]) + Decimal(told["changes"])
        scope, name = told["scope"], told["name"]
        return {
            "scope": scope,
            "name": name,
            "title": "your budget" if scope == "user" else f"the budget of {name}",
            "left": told["left"],
            "limit": format(limit, "f"),
            "share": left / limit if limit > 0 else Decimal(0),
            "unit": told["unit"],
            "hard": bool(told["hard"]),
            "until": told.get("until"),
        }
    except (KeyError, TypeError, ValueError, AttributeError, DecimalException):
        return None
