"""The client's models are replicas of the broker's: same names, and they read what it writes."""

from __future__ import annotations

import pytest
from allotment import budgets, fleet, models, money
from allotment_hub.broker.routes.choices import MeView
from allotment_hub.broker.routes.health import ReadyView
from allotment_hub.broker.services import views
from allotment_spawner import money_wire, wire
from pydantic import BaseModel

PAIRS = [
    (models.Device, wire.DeviceView),
    (models.ExpectedStart, wire.ExpectedStart),
    (models.Lease, wire.LeaseView),
    (models.Flavor, wire.FlavorView),
    (models.Environment, wire.EnvironmentView),
    (models.Explanation, views.Explanation),
    (models.Rule, views.RuleView),
    (models.RuleDevice, views.DeviceHold),
    (models.Health, ReadyView),
    (fleet.Fleet, views.FleetView),
    (fleet.FleetGpu, views.GpuView),
    (fleet.FleetSlice, views.SliceView),
    (fleet.FleetProcess, views.ProcessView),
    (fleet.Whole, views.WholeView),
    (fleet.Stray, views.StrayView),
    (budgets.Budget, money_wire.BudgetView),
    (budgets.BudgetChange, money_wire.BudgetChangeView),
    (budgets.BudgetHistory, money_wire.BudgetHistory),
    (money.Usage, money_wire.UsageView),
    (money.UsageRow, money_wire.UsageRow),
    (money.Entry, money_wire.EntryView),
    (fleet.Part, views.EngineHealthView),
]


def names(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


@pytest.mark.parametrize(("replica", "original"), PAIRS, ids=lambda model: model.__name__)
def test_replicas_have_the_originals_members(replica: type[BaseModel], original: type[BaseModel]) -> None:
    assert names(replica) == names(original)


def test_me_asks_for_nothing_that_is_not_there() -> None:
    assert names(models.Me) <= names(MeView)
