"""People, groups and budgets on a broker in the test's own process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allotment_hub.broker.factory import Broker
from allotment_hub.broker.services.budget_views import NewBudget, Reader
from allotment_hub.catalog import Catalog
from allotment_hub.site import BudgetPolicies, Policies, Site
from allotment_spawner.money_wire import BudgetHistory, BudgetView, QuoteView
from allotment_spawner.wire import LeaseReply, LeaseRequest

from allotment_testing.broker_world import BrokerWorld
from allotment_testing.protocol_spawner import ProtocolSpawner

__all__ = ["OLGA", "ask", "budget_of", "fund", "notices_of", "quote_of", "run", "world_in"]

OLGA = Reader("olga", "olga", operator=True, everything=True)


def world_in(
    folder: Path,
    groups: Mapping[str, str] | None = None,
    *,
    catalog: Catalog | None = None,
    site: Site | None = None,
) -> BrokerWorld:
    """{"ada": "a b"}: ada is in the groups a and b. Ten minutes of grace, warnings at 80 and 95 percent."""
    parts = {"policies": Policies(sessions_per_person=50), "budgets": BudgetPolicies()}
    world = BrokerWorld(folder, site=(site or Site()).model_copy(update=parts), catalog=catalog)
    world.hub.groups = {user: frozenset(names.split()) for user, names in (groups or {}).items()}
    return world


async def fund(broker: Broker, name: str, amount: str, **more: Any) -> BudgetView:
    """A hard budget of a group in money by the month, unless `more` says otherwise."""
    fields = {"scope": "group", "unit": "money", "period": "month", "hard": True} | more
    wanted = NewBudget.model_validate({"name": name, "amount": amount, **fields})
    return await broker.budgets.make("olga", wanted)


async def ask(broker: Broker, user: str, flavor: str = "gpu-10gb", **more: Any) -> LeaseReply:
    body = LeaseRequest(user=user, environment="minimal", flavor=flavor, **more)
    attempt = "".join(c for c in f"{user}-{flavor}-{sorted(more.items())}" if c.isalnum())
    return await broker.leases.request(attempt=attempt, body=body)


async def run(world: BrokerWorld, broker: Broker, user: str, **more: Any) -> ProtocolSpawner:
    """An active session."""
    spawner = ProtocolSpawner(
        world, user, flavor=more.pop("flavor", "gpu-10gb"), server=more.pop("server", "")
    )
    spawner.body = spawner.body.model_copy(update=more)
    await spawner.run(broker)
    return spawner


async def budget_of(broker: Broker, budget: BudgetView) -> BudgetHistory:
    return await broker.budgets.one(OLGA, budget.id)


async def notices_of(broker: Broker, lease: str) -> list[str]:
    return [notice.sentence for notice in await broker.notices.of(lease)]


async def quote_of(broker: Broker, user: str, flavor: str = "gpu-10gb") -> QuoteView:
    found = next(one for one in await broker.fleet.flavors(user) if one.id == flavor)
    assert found.quote is not None
    return found.quote
