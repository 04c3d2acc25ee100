"""Hard and soft budgets of people and groups: who is charged, what is refused, who is warned and stopped."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from allotment_hub.broker.factory import Broker
from allotment_hub.broker.services.budget_views import NewBudget, Reader
from allotment_hub.site import BudgetPolicies, Policies, Site
from allotment_spawner.core.errors import BudgetExhausted
from allotment_spawner.core.lease import LeaseState
from allotment_spawner.money_wire import BudgetView
from allotment_spawner.wire import LeaseReply, LeaseRequest
from allotment_testing.broker_world import BrokerWorld

OLGA = Reader("olga", "olga", operator=True, everything=True)


def world_in(folder: Path, **groups: str) -> BrokerWorld:
    """`ada="a b"`: ada is in the groups a and b."""
    site = Site(policies=Policies(sessions_per_person=50), budgets=BudgetPolicies(grace_minutes=10))
    world = BrokerWorld(folder, site=site)
    world.hub.groups = {user: frozenset(names.split()) for user, names in groups.items()}
    return world


async def fund(broker: Broker, name: str, amount: str, **more: Any) -> BudgetView:
    fields = {"scope": "group", "unit": "money", "period": "month", "hard": True} | more
    wanted = NewBudget.model_validate({"name": name, "amount": amount, **fields})
    return await broker.budgets.make("olga", wanted)


async def ask(broker: Broker, user: str, flavor: str = "gpu-10gb", **more: Any) -> LeaseReply:
    body = LeaseRequest(user=user, environment="minimal", flavor=flavor, **more)
    return await broker.leases.request(attempt=f"{user}-{flavor}-{more}".replace(" ", ""), body=body)


async def left_of(broker: Broker, budget: BudgetView) -> Decimal:
    return (await broker.budgets.one(OLGA, budget.id)).left


async def test_a_start_that_cannot_be_paid_is_refused_with_the_sum_that_lacks(tmp_path: Path) -> None:
    async with world_in(tmp_path, ada="physics").broker() as broker:
        await fund(broker, "physics", "0.05")
        with pytest.raises(BudgetExhausted) as said:
            await ask(broker, "ada")
        assert said.value.sentence == (
            "The budget of physics lacks 0.016667 credits: 0.05 are left, "
            "and 10 minutes of 10 GB GPU need 0.066667."
        )
        assert said.value.details["lacks"] == "0.016667"
        assert said.value.details["budget"] == "physics"
        assert (await ask(broker, "ada", "cpu")).lease.charged_to == "physics"
        found = await broker.leases.find(user="ada", server="", live=False, limit=5)
        assert {(one.state, str(one.end_reason)) for one in found} >= {(LeaseState.ENDED, "refused")}
