"""The README names every command, option and configuration key that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from allotment.cli import build_app
from allotment_hub.catalog import Catalog, Flavor, GpuWant
from allotment_hub.prices import Prices
from allotment_hub.site import (
    BrokerSettings,
    BudgetPolicies,
    DatasetSettings,
    DiskSettings,
    DockerSettings,
    HomeSettings,
    Limit,
    LocalSettings,
    MetricSettings,
    Mount,
    Policies,
    Pool,
    ScratchSettings,
    SignIn,
    Site,
)
from allotment_spawner.core.lease import EndReason
from pydantic import BaseModel
from typer.main import get_command


@pytest.fixture(scope="module")
def readme(root: Path) -> str:
    return (root / "README.md").read_text(encoding="utf-8")


def test_every_command_of_allot_is_there(readme: str) -> None:
    commands = get_command(build_app()).list_commands(None)  # type: ignore[attr-defined]
    assert [name for name in commands if f"allot {name}" not in readme] == []


@pytest.mark.parametrize("command", ["./deploy/up", "./deploy/down", "images/build", "./tests/run"])
def test_the_other_commands_are_there(command: str, readme: str) -> None:
    assert command in readme


@pytest.mark.parametrize(
    "section",
    [
        Site,
        Pool,
        Policies,
        DockerSettings,
        HomeSettings,
        Mount,
        DatasetSettings,
        ScratchSettings,
        DiskSettings,
        LocalSettings,
        SignIn,
        BrokerSettings,
        Limit,
        BudgetPolicies,
        MetricSettings,
        Catalog,
        Flavor,
        GpuWant,
        Prices,
    ],
)
def test_every_configuration_key_is_there(section: type[BaseModel], readme: str) -> None:
    assert [key for key in section.model_fields if f"`{key}`" not in readme] == []


def test_every_reason_to_end_is_there(readme: str) -> None:
    assert [reason.value for reason in EndReason if f"`{reason.value}`" not in readme] == []


def test_links_into_the_tree_work(readme: str, root: Path) -> None:
    targets = re.findall(r"\]\((?!https?://|#)([^)#]+)", readme)
    assert [target for target in targets if not (root / target).exists()] == []


def test_fences_are_closed(readme: str) -> None:
    assert readme.count("\n```") % 2 == 0
