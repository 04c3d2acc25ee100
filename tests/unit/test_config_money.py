"""Prices, schedules, limits and currencies: what is absurd is refused with file, line and key."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from allotment_hub.config_loading import ConfigError, load_catalog, load_configuration, load_site

CATALOG = """\
flavors:
  cpu: {title: CPU, cpu: 1, memory_gib: 1, price_per_hour: "0.05"}
  big: {title: Big, cpu: 1, memory_gib: 1, price_per_hour: {gpu: "0.30", cpu: "0.08", memory: "0.02"}}
environments:
  minimal: {}
prices:
"""


def wrong(folder: Path, prices: str) -> list[str]:
    path = folder / "catalog.yaml"
    path.write_text(CATALOG + prices, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        load_catalog(path)
    return [line.replace(f"{folder}/", "") for line in error.value.findings]


def wrong_site(folder: Path, text: str) -> list[str]:
    (folder / "site.yaml").write_text(text, encoding="utf-8")
    (folder / "catalog.yaml").write_text(CATALOG + "  {}\n", encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        load_configuration(site=folder / "site.yaml", catalog=folder / "catalog.yaml")
    return [line.replace(f"{folder}/", "") for line in error.value.findings]


def test_parts_of_a_price_are_added(tmp_path: Path) -> None:
    path = tmp_path / "catalog.yaml"
    path.write_text(CATALOG + "  zone: Europe/Berlin\n", encoding="utf-8")
    assert load_catalog(path).flavors["big"].rate == Decimal("0.40")


@pytest.mark.parametrize(
    ("price", "why"),
    [
        ('"-0.01"', "should be greater than or equal to 0"),
        ('"1000001"', "should be less than or equal to 1000000"),
        ('"0.0000001"', "no more than 6 decimal places"),
        ('"much"', "valid decimal"),
        ('"NaN"', "finite"),
    ],
)
def test_absurd_prices(tmp_path: Path, price: str, why: str) -> None:
    path = tmp_path / "catalog.yaml"
    path.write_text(CATALOG.replace('"0.05"', price).replace("prices:\n", ""), encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        load_catalog(path)
    [finding] = error.value.findings
    assert finding.startswith(f"{path}:2: flavors.cpu.price_per_hour: ")
    assert why in finding


def test_schedules_that_overlap_are_refused_where_they_meet(tmp_path: Path) -> None:
    prices = (
        "  schedules:\n"
        '    - {name: nights, from: "22:00", to: "06:00", factor: "0.5"}\n'
        '    - {name: weekend, days: [sat, sun], factor: "0.5", flavors: [big]}\n'
        '    - {name: monday, days: [mon], from: "05:59", to: "07:00", factor: "2"}\n'
        '    - {name: noon, from: "12:00", to: "13:00", price_per_hour: "0.1", flavors: [cpu]}\n'
    )
    unclear = "which price would hold is not clear"
    assert wrong(tmp_path, prices) == [
        f"catalog.yaml:9: prices.schedules.1: overlaps with 'nights' for big: {unclear}",
        f"catalog.yaml:10: prices.schedules.2: overlaps with 'nights' for cpu: {unclear}",
    ]


def test_a_schedule_says_one_price_and_names_flavors_that_exist(tmp_path: Path) -> None:
    prices = (
        "  zone: Europe/Berlim\n"
        "  schedules:\n"
        '    - {name: a, from: "22:00", to: "23:00"}\n'
        '    - {name: a, from: "20:00", to: "21:00", factor: "1", price_per_hour: "1"}\n'
        '    - {name: b, from: "18:00", to: "19:00", factor: "1", flavors: [bog]}\n'
    )
    assert wrong(tmp_path, prices) == [
        "catalog.yaml:11: prices.schedules.2.flavors.0: no flavor is called 'bog'; did you mean 'big'?",
        "catalog.yaml:7: prices.zone: no time zone is called 'Europe/Berlim'; write one like Europe/Berlin",
        "catalog.yaml:9: prices.schedules.0.name: 'a' names more than one schedule",
        "catalog.yaml:9: prices.schedules.0: give either `factor` or `price_per_hour`",
        "catalog.yaml:10: prices.schedules.1.name: 'a' names more than one schedule",
        "catalog.yaml:10: prices.schedules.1: give either `factor` or `price_per_hour`",
    ]


def test_currencies_and_limits(tmp_path: Path) -> None:
    text = "currency: EURO\nlimits:\n  - {groups: [students]}\n  - {flavors: [huge], hours: 8}\n"
    assert wrong_site(tmp_path, text) == [
        "site.yaml:1: currency: must be \"credits\" or an ISO 4217 code such as EUR, not 'EURO'",
        "site.yaml:3: limits.0: limits nothing: give `sessions`, `devices` or `hours`",
        "site.yaml:4: limits.1.flavors.0: no flavor of the catalogue is called 'huge'; there are big, cpu",
    ]
    (tmp_path / "site.yaml").write_text("currency: CHF\n", encoding="utf-8")
    assert load_site(tmp_path / "site.yaml").currency == "CHF"
