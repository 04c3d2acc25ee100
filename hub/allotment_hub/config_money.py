"""What must hold between prices, schedules, limits and the currency."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from babel.numbers import list_currencies

from allotment_hub.catalog import Catalog
from allotment_hub.prices import DAYS, Schedule
from allotment_hub.site import Site
from allotment_hub.yaml_lines import Document, KeyPath

__all__ = ["check_currency", "check_limits", "check_prices"]

_WEEK = 7 * 24 * 60


def check_currency(document: Document, site: Site) -> None:
    if site.currency != "credits" and site.currency not in list_currencies():
        document.complain(
            ("currency",), f'must be "credits" or an ISO 4217 code such as EUR, not {site.currency!r}'
        )


def check_limits(document: Document, site: Site) -> None:
    for index, limit in enumerate(site.limits):
        if limit.sessions is None and limit.devices is None and limit.hours is None:
            document.complain(("limits", index), "limits nothing: give `sessions`, `devices` or `hours`")


def check_prices(document: Document, catalog: Catalog) -> None:
    prices = catalog.prices
    try:
        ZoneInfo(prices.zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        document.complain(
            ("prices", "zone"), f"no time zone is called {prices.zone!r}; write one like Europe/Berlin"
        )
    names = Counter(schedule.name for schedule in prices.schedules)
    for index, schedule in enumerate(prices.schedules):
        key: KeyPath = ("prices", "schedules", index)
        if names[schedule.name] > 1:
            document.complain((*key, "name"), f"{schedule.name!r} names more than one schedule")
        if (schedule.factor is None) == (schedule.price_per_hour is None):
            document.complain(key, "give either `factor` or `price_per_hour`")
    for (_, first), (later, second) in combinations(enumerate(prices.schedules), 2):
        common = _common(first, second, list(catalog.flavors))
        if common and _minutes(first) & _minutes(second):
            document.complain(
                ("prices", "schedules", later),
                f"overlaps with {first.name!r} for {common[0]}: which price would hold is not clear",
            )


def _common(first: Schedule, second: Schedule, flavors: list[str]) -> list[str]:
    """Flavors that both are for."""

    def has(schedule: Schedule, flavor: str) -> bool:
        return schedule.flavors == "all" or flavor in schedule.flavors

    return [flavor for flavor in flavors if has(first, flavor) and has(second, flavor)]


def _minutes(schedule: Schedule) -> set[int]:
    """The minutes of the week in which it holds, from Monday's midnight."""
    start, end = (int(text[:2]) * 60 + int(text[3:]) for text in (schedule.from_, schedule.to))
    length = (end - start) % (24 * 60) or 24 * 60
    found: set[int] = set()
    for day in schedule.days:
        first = DAYS.index(day) * 24 * 60 + start
        found.update(minute % _WEEK for minute in range(first, first + length))
    return found
