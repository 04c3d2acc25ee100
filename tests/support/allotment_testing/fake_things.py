"""What the fake broker offers besides devices: versions of an environment, a home, folders, data."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from allotment_spawner.money_wire import PriceChange, QuoteBudget, QuoteView
from allotment_spawner.wire import DatasetView, HomeView, MountView, VersionView

__all__ = [
    "NEWER",
    "OLDER",
    "RETIRED",
    "some_budget",
    "some_datasets",
    "some_home",
    "some_mounts",
    "some_quote",
    "some_versions",
]

NEWER, OLDER, RETIRED = "aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc"
_GIB = 2**30


def some_versions() -> tuple[VersionView, ...]:
    """One that is offered, one that may stay, one that is over; the newest first."""
    made = [
        (NEWER, "0.2.0-cpu", "offered", 28, {"python": "3.11", "numpy": "2.4.0"}),
        (OLDER, "0.1.1-cpu", "kept", 12, {"python": "3.11", "numpy": "2.3.0"}),
        (RETIRED, "0.1.0-cpu", "retired", 1, {"python": "3.11", "numpy": "2.2.0"}),
    ]
    return tuple(
        VersionView.model_validate(
            {
                "version": version,
                "label": label,
                "digest": f"sha256:{version}",
                "state": state,
                "size_bytes": _GIB,
                "made_at": datetime(2026, 11, day, tzinfo=UTC),
                "replaced_by": NEWER if state == "retired" else None,
                "packages": packages,
            }
        )
        for version, label, state, day, packages in made
    )


def some_home(user: str, *, used_bytes: int | None = 3 * _GIB) -> HomeView:
    """3 of 10 GB, or as much as is said; a warning from 9 GB on."""
    full = used_bytes is not None and used_bytes >= 9 * _GIB
    return HomeView(
        user=user,
        used_bytes=used_bytes,
        files=1200,
        limit_bytes=10 * _GIB,
        enforced=False,
        measured_at=datetime(2026, 11, 30, 12, tzinfo=UTC),
        state="live",
        warning="Your home is nearly full: remove what you no longer need." if full else None,
    )


def some_mounts() -> list[MountView]:
    return [
        MountView(name="course", title="Course <files>", path="/data/course", writable=False),
        MountView(name="team", title="", path="/data/team", writable=True),
    ]


def some_datasets() -> list[DatasetView]:
    """One on the machine, one to be fetched, one on its way, one that failed."""
    made: list[tuple[str, str, int | None, str | None]] = [
        ("mnist", "ready", None, None),
        ("imagenet", "absent", None, None),
        ("cifar", "fetching", _GIB, None),
        ("gone", "failed", None, "The server that has it answers 404."),
    ]
    return [
        DatasetView.model_validate(
            {
                "name": name,
                "title": name.upper(),
                "description": "Pictures to learn from",
                "licence": "CC-BY-4.0",
                "path": f"/datasets/{name}",
                "size_bytes": 4 * _GIB,
                "got_bytes": got,
                "state": state,
                "reason": reason,
                "pinned": False,
            }
        )
        for name, state, got, reason in made
    ]


def some_budget(name: str, *, left: str, lasts_s: float | None = None, **other: Any) -> QuoteBudget:
    """A hard one of 20 credits a month for a group; `other` members as said."""
    return QuoteBudget.model_validate(
        {
            "id": f"b-{name}",
            "scope": "group",
            "name": name,
            "unit": "money",
            "limit": "20",
            "left": left,
            "hard": True,
            "period": "month",
            "until": datetime(2026, 12, 31, 23, tzinfo=UTC),
            "lasts_s": lasts_s,
            **other,
        }
    )


def some_quote(price: str, *, change: str | None = None, **other: Any) -> QuoteView:
    """Without a budget; `change`: the price from three hours from now on."""
    later = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=3)
    changes = () if change is None else (PriceChange(at=later, price_per_hour=Decimal(change)),)
    return QuoteView.model_validate(
        {
            "price_per_hour": price,
            "currency": "credits",
            "changes": changes,
            "charge_to": None,
            "may_charge": (),
            "budgets": (),
            "lasts_s": None,
            "longest_s": None,
            "minimum": "0.07",
            "refusal": None,
            **other,
        }
    )
