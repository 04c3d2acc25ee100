"""From the catalogue to the rate schedule that a lease keeps."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, cast

import pytest
from allotment_hub.accounting.tariff import Tariff, Window
from allotment_hub.broker.services.observe import Observations
from allotment_hub.broker.services.tariffs import Tariffs
from allotment_hub.broker.store.records import Device
from allotment_hub.catalog import Catalog, Flavor, GpuWant
from allotment_hub.prices import Prices
from allotment_hub.site import Site
from allotment_spawner.core.inventory import Gpu, NodeInventory, Profile

D = Decimal
ALWAYS = frozenset(range(7))
PRICES = {
    "zone": "Europe/Berlin",
    "schedules": [
        {"name": "night", "from": "22:00", "to": "06:30", "factor": "0.5"},
        {"name": "noon", "days": ["sat", "sun"], "from": "12:00", "to": "13:00", "price_per_hour": "1"},
        {"name": "big", "from": "08:00", "to": "09:00", "factor": "2", "flavors": ["whole"]},
    ],
    "classes": {"normal": "0.8"},
    "groups": {"students": "0.5", "staff": "0.333333", "rich": "2"},
}


def slice_of(axis: int, gb: int) -> Profile:
    return Profile(f"1g.{gb}gb", 19, gb * 10**9, 1, 1, tuple(range(axis)), axis)


def tariffs(*axes: int) -> Tariffs:
    flavors = {
        "slice": Flavor(
            title="S",
            gpu=GpuWant(kind="slice", memory_gb=10),
            cpu=1,
            memory_gib=1,
            price_per_hour=D("0.333333"),
        ),
        "whole": Flavor(
            title="W", gpu=GpuWant(kind="whole", count=2), cpu=1, memory_gib=1, price_per_hour=D("3.2")
        ),
        "cpu": Flavor(title="C", cpu=1, memory_gib=1, price_per_hour=D("0.05")),
    }
    catalog = Catalog(flavors=flavors, environments={}, prices=Prices.model_validate(PRICES))
    nothing: Any = cast(Any, None)
    seen = Observations(agent=nothing, engine=nothing, clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    gpus = tuple(
        Gpu(f"GPU-{axis}", index, "m", 80 * 10**9, axis > 0, axis, (slice_of(axis, 10),) if axis else ())
        for index, axis in enumerate(axes)
    )
    if axes:
        seen.inventory = NodeInventory("n", "b", True, None, gpus)
    return Tariffs(site=Site(currency="EUR"), catalog=catalog, observations=seen)


def test_schedules_and_factors_multiply_and_are_rounded_once() -> None:
    found = tariffs().of("slice", factor=D("0.333333"), queue_class="normal", gpus=D("0.125"))
    assert found == Tariff(
        "EUR",
        "Europe/Berlin",
        D("0.088889"),
        (
            Window(ALWAYS, 22 * 60, 6 * 60 + 30, D("0.044444")),
            Window(frozenset({5, 6}), 12 * 60, 13 * 60, D("0.266666")),
        ),
        D("0.125"),
    )
    assert [one.per_hour for one in tariffs().of("whole").windows] == [D("1.6"), D(1), D("6.4")]


@pytest.mark.parametrize(
    ("groups", "factor"),
    [((), None), (("nobody",), None), (("students", "staff", "rich"), D("0.333333")), (("rich",), D(2))],
)
def test_the_smallest_factor_of_ones_groups(groups: tuple[str, ...], factor: Decimal | None) -> None:
    assert tariffs().factor_of(groups) == factor


def device(axis: int, size: int | None) -> Device:
    return Device(f"GPU-{axis}", "n", None if size is None else "p", 0 if size else None, size, "u")


def test_shares_of_whole_gpus() -> None:
    known = tariffs(8, 4, 12, 0)
    assert known.gpus_of([]) == 0
    assert known.gpus_of([device(8, 1)]) == D("0.125")
    assert known.gpus_of([device(4, 2)]) == D("0.5")
    assert known.gpus_of([device(12, 1)]) == D("0.083333")
    assert known.gpus_of([device(8, 8)]) == 1
    assert known.gpus_of([device(0, None), device(0, None)]) == 2


def test_shares_before_the_grant() -> None:
    assert tariffs().gpus_for("slice") is None, "no GPU was seen yet"
    assert tariffs(0, 4).gpus_for("slice") == D("0.25")
    assert tariffs().gpus_for("whole") == 2
    assert tariffs().gpus_for("cpu") == 0
    assert tariffs(8).quoted("slice", {"factor": "0.5"}).gpus == D("0.125")
    assert tariffs(8).quoted("slice", {"factor": "0.5"}).per_hour == D("0.166666")
