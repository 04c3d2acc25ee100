"""What a start would cost, what is left to pay it and for how long, in words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import ROUND_FLOOR, Decimal
from typing import Any

from allotment_spawner.money_wire import QuoteBudget, QuoteView
from allotment_spawner.wire import FlavorView

__all__ = ["amount", "budgets_of", "cannot_pay", "clock", "money_of", "price", "span"]

_CENT = Decimal("0.01")
_LOW_PERCENT = 20
_A_CENTURY_S = 100 * 365 * 86_400.0
"""More than that no date can be."""


def price(per_hour: Decimal, currency: str) -> str:
    """ "0.40 credits an hour"; at least two decimals, never rounded."""
    exponent = per_hour.normalize().as_tuple().exponent
    places = max(2, -exponent) if isinstance(exponent, int) else 2
    return f"{per_hour:.{places}f} {currency} an hour" if per_hour else "free of charge"


def amount(value: Decimal, unit: str) -> str:
    """ "4.20 credits": what somebody has, so rounded down; the part of a cent that is there is said."""
    cents = value.quantize(_CENT, rounding=ROUND_FLOOR)
    return f"less than {_CENT} {unit}" if value > 0 and not cents else f"{cents:.2f} {unit}"


def span(seconds: float) -> str:
    """ "2 days 3 h", "10 h 30 min", "4 min": rounded down, as nobody may count on more."""
    minutes = int(max(seconds, 0) // 60)
    days, hours = minutes // 1440, minutes // 60 % 24
    if days:
        whole = f"{days} day{'s' * (days != 1)}"
        return f"{whole} {hours} h" if hours and days < 10 else whole
    if minutes >= 60:
        return f"{hours} h {minutes % 60} min" if minutes % 60 else f"{hours} h"
    return f"{minutes} min" if minutes else "less than a minute"


def clock(moment: datetime) -> str:
    """For readers without scripts; the page's script shows local time."""
    return moment.strftime("%H:%M UTC")


def money_of(flavor: FlavorView, now: datetime) -> dict[str, Any]:
    """{"price": now, "change": {"at", "clock", "price"} or None, "longest": sentence or "", "charges"}.

    `charges`: group, or "" where none was chosen -> {"to": group or None, "lasts": sentence or "", "why":
    why it cannot pay or None}.
    """
    quote = flavor.quote
    if quote is None:
        bare = {"to": None, "lasts": "", "why": None}
        listed = price(flavor.price_per_hour, flavor.currency)
        return {"price": listed, "change": None, "longest": "", "charges": {"": bare}}
    longest = "" if quote.longest_s is None else f"At most {span(quote.longest_s)} at a time."
    unchosen = {"to": quote.charge_to, "lasts": _lasts(quote.budgets, now), "why": quote.refusal}
    return {
        "price": price(quote.price_per_hour, quote.currency),
        "change": _change(quote),
        "longest": longest,
        "charges": {"": unchosen, **{name: _charged(name, quote, now) for name in quote.may_charge}},
    }


def cannot_pay(flavor: FlavorView) -> str | None:
    """Why a hard budget does not pay for the shortest time of this size, even with nothing beside it."""
    quote = flavor.quote
    if quote is None or quote.refusal is None:
        return None
    poor = [one for one in quote.budgets if one.hard and one.unit == "money" and one.left < quote.minimum]
    return quote.refusal if poor and quote.minimum else None


def budgets_of(flavors: Sequence[FlavorView]) -> dict[str, Any]:
    """{"budgets": [{"title", "line", "percent", "tone", "until"}], "charge_to": groups to charge}.

    `percent` is what is left of it.
    """
    quotes = [one.quote for one in flavors if one.quote is not None]
    found = {budget.id: budget for quote in quotes for budget in (*quote.budgets, *quote.choices)}
    groups = quotes[0].may_charge if quotes else ()
    currency = quotes[0].currency if quotes else ""
    order = sorted(found.values(), key=lambda one: (one.scope != "user", one.name))
    return {
        "budgets": [_budget(one, currency) for one in order],
        "charge_to": list(groups),
    }


def _charged(group: str, quote: QuoteView, now: datetime) -> dict[str, Any]:
    """If this group is chosen; its own words, where the broker's are about another one."""
    if group == quote.charge_to:
        return {"to": group, "lasts": _lasts(quote.budgets, now), "why": quote.refusal}
    theirs = [one for one in quote.choices if one.name == group]
    own = [one for one in quote.budgets if one.scope == "user"]
    lacks = max((quote.minimum - one.left for one in theirs if one.hard and one.unit == "money"), default=0)
    why = quote.refusal
    if why is None and lacks > 0:
        why = f"The budget of {group} lacks {_exact(Decimal(lacks))} {quote.currency} for the shortest time."
    return {"to": group, "lasts": _lasts([*own, *theirs], now), "why": why}


def _lasts(budgets: Sequence[QuoteBudget], now: datetime) -> str:
    """By the first hard budget that is used up; else by the first of the others, which only warn."""
    hard = [one for one in budgets if one.hard and one.lasts_s is not None]
    ends = [one.lasts_s for one in hard if one.lasts_s is not None and not _renewed_before(one, now)]
    if ends:
        return f"What is left pays for {span(min(ends))}."
    if hard:
        return "What is left pays to the end of its period."
    soft = [one.lasts_s for one in budgets if one.lasts_s is not None and not _renewed_before(one, now)]
    if not soft:
        return ""
    if min(soft) <= 0:
        return "The budget is used up; you are warned, but nothing stops."
    return f"The budget lasts for {span(min(soft))}; after that you are warned, but nothing stops."


def _renewed_before(one: QuoteBudget, now: datetime) -> bool:
    """Whether there is new money before this is used up; a term ends with its period."""
    if one.until is None or one.lasts_s is None or one.period == "term":
        return False
    return now + timedelta(seconds=min(one.lasts_s, _A_CENTURY_S)) >= one.until


def _change(quote: QuoteView) -> dict[str, str] | None:
    if not quote.changes:
        return None
    first = quote.changes[0]
    return {
        "at": first.at.isoformat(),
        "clock": clock(first.at),
        "price": price(first.price_per_hour, quote.currency),
    }


def _budget(one: QuoteBudget, currency: str) -> dict[str, Any]:
    unit = currency if one.unit == "money" else "GPU hours"
    of = f" of {_exact(one.limit)} {unit}"
    line = (
        f"Overdrawn by {_exact(-one.left)}{of}"
        if one.left < 0
        else f"{amount(one.left, '').strip()}{of} left"
    )
    share = one.left / one.limit if one.limit > 0 else Decimal(0)
    percent = int(100 * min(max(share, Decimal(0)), Decimal(1)))
    return {
        "id": one.id,
        "title": "Your own budget" if one.scope == "user" else f"Budget of {one.name}",
        "line": line,
        "percent": percent,
        "tone": "low" if percent < _LOW_PERCENT else "ok",
        "hard": one.hard,
        "renewed": one.period != "term",
        "until": one.until
        and {"at": one.until.isoformat(), "clock": f"{one.until:%Y-%m-%d} {clock(one.until)}"},
    }


def _exact(value: Decimal) -> str:
    """At least two decimals, never rounded."""
    exponent = value.normalize().as_tuple().exponent
    places = max(2, -exponent) if isinstance(exponent, int) else 2
    return f"{value:.{places}f}"
