"""What the form says about a flavor, and which card it offers first."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from allotment_spawner.spawners.choices import hardware, outcome, preselected
from allotment_spawner.spawners.defaults import cheapest_without_gpu, plainest
from allotment_spawner.spawners.money import price
from allotment_spawner.spawners.options import Choice
from allotment_spawner.wire import EnvironmentView, FlavorView

SLICE = {"kind": "slice", "profile": "1g.10gb", "count": 1, "memory_bytes": None, "model": "A100"}
WAIT = "None free. You would wait"
NONE = {"kind": "none", "profile": None, "count": 0, "memory_bytes": None, "model": None}


def flavor(flavor_id: str, gpu: dict[str, Any] = SLICE, **changes: Any) -> FlavorView:
    fields: dict[str, Any] = {
        "id": flavor_id,
        "title": flavor_id,
        "resources": {"gpu": gpu, "cpu": 2.0, "memory_bytes": 8 * 2**30},
        "free": 3,
        "total": 7,
        "price_per_hour": Decimal("0.40"),
        "currency": "credits",
        "available": True,
        "reason": None,
        "expected_wait_s": None,
    }
    return FlavorView.model_validate(fields | changes)


@pytest.mark.parametrize(
    ("offered", "waiting", "expected"),
    [
        (flavor("a"), 0, ("now", "Starts now: 3 of 7 free.")),
        (flavor("a", NONE, free=None, total=None), 4, ("now", "Starts now.")),
        (flavor("a", free=None), 0, ("wait", "How many are free is unknown.")),
        (flavor("a", free=0), 2, ("wait", f"{WAIT}; 2 people before you, how long is not known.")),
        (flavor("a", free=0), 1, ("wait", f"{WAIT}; 1 person before you, how long is not known.")),
        (
            flavor("a", free=0, expected_wait_s=700.0),
            0,
            ("wait", f"{WAIT} as the first in line, about 12 minutes."),
        ),
        (flavor("a", available=False, reason="No such card."), 0, ("no", "No such card.")),
    ],
)
def test_what_would_happen(offered: FlavorView, waiting: int, expected: tuple[str, str]) -> None:
    assert outcome(offered, waiting) == expected


def test_hardware_and_price_in_words() -> None:
    assert hardware(flavor("a")) == "1g.10gb slice of A100 · 2 CPUs · 8 GB memory"
    assert hardware(flavor("a", NONE)) == "2 CPUs · 8 GB memory"
    assert hardware(flavor("a", {**SLICE, "kind": "whole", "count": 2})).startswith("2 × A100")
    assert price(Decimal("0.4"), "credits") == "0.40 credits an hour"
    assert price(Decimal("0.000125"), "EUR") == "0.000125 EUR an hour"
    assert price(Decimal(0), "credits") == "free of charge"


def test_defaults_are_cheap() -> None:
    cheap = flavor("cheap-gpu", price_per_hour=Decimal("0.01"))
    cpu = flavor("cpu", NONE, price_per_hour=Decimal("0.05"))
    off = flavor("off", NONE, price_per_hour=Decimal(0), available=False)
    assert cheapest_without_gpu([cheap, cpu, off]) == "cpu"
    assert cheapest_without_gpu([cheap]) == "cheap-gpu"
    assert cheapest_without_gpu([off]) is None
    shared: dict[str, Any] = {"title": "", "description": "", "packages": {}, "image": None, "reason": None}
    views = [
        EnvironmentView(id=one, available=one != "gone", **shared) for one in ("gone", "pytorch", "minimal")
    ]
    assert plainest(views) == "minimal"
    assert plainest(views[:2]) == "pytorch"
    assert plainest(views[:1]) is None


def test_the_last_choice_is_offered_unless_it_cannot_run() -> None:
    choices: dict[str, Any] = {
        "environments": [{"id": "minimal", "available": True, "reasons": {"old": "Its driver is too old."}}],
        "flavors": [
            {"id": "cpu", "available": True},
            {"id": "gpu-2x", "available": False},
            {"id": "old", "available": True},
        ],
        "datasets": [{"name": "mnist"}],
        "defaults": {"environment": "minimal", "flavor": "cpu"},
    }

    def chosen(last: Choice) -> tuple[Any, Any]:
        selected = preselected(choices, last)
        return selected["environment"], selected["flavor"]

    assert chosen(Choice("minimal", "cpu")) == ("minimal", "cpu")
    assert chosen(Choice("gone", "gpu-2x")) == ("minimal", "cpu")
    assert chosen(Choice("minimal", "old")) == ("minimal", "cpu"), "they do not go together"
    selected = preselected(choices, Choice(datasets=("mnist", "gone"), app="terminal"))
    assert (selected["datasets"], selected["app"], selected["repo"]) == (["mnist"], "terminal", "")
    assert preselected({**choices, "datasets": None}, Choice(datasets=("mnist",)))["datasets"] == []
