"""What starts when somebody asks for a server without saying which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from allotment_spawner.core.errors import FlavorUnavailable
from allotment_spawner.spawners.broker_client import BrokerClient
from allotment_spawner.spawners.options import Choice
from allotment_spawner.wire import EnvironmentView, FlavorView

__all__ = ["cheapest_without_gpu", "complete", "needs_gpu", "plainest"]


async def complete(asked: Choice, *, broker: BrokerClient, user: str, defaults: Choice) -> Choice:
    """`asked` with its gaps filled: by this site's defaults, else by the cheapest that this person may have.

    Any opened notebook of VS Code starts a server with an empty request, so a default must be cheap.
    """
    environment = asked.environment or defaults.environment
    if environment is None:
        environment = plainest(await broker.environments(user))
    flavor = asked.flavor or defaults.flavor
    if flavor is None:
        flavor = cheapest_without_gpu(await broker.flavors(user))
    if environment is None or flavor is None:
        raise FlavorUnavailable("There is nothing here that you could start now.", "Ask an operator.")
    return replace(asked, environment=environment, flavor=flavor)


def needs_gpu(flavor: FlavorView) -> bool:
    gpu = flavor.resources.get("gpu")
    return isinstance(gpu, dict) and gpu.get("kind") != "none"


def cheapest_without_gpu(flavors: Sequence[FlavorView]) -> str | None:
    """The cheapest available flavor without a GPU, else the cheapest at all; what can be paid comes first."""
    offered = [flavor for flavor in flavors if flavor.available]
    payable = [flavor for flavor in offered if flavor.quote is None or flavor.quote.refusal is None]
    best = min(payable or offered, key=lambda one: (needs_gpu(one), _price(one)), default=None)
    return None if best is None else best.id


def _price(flavor: FlavorView) -> Decimal:
    """Of an hour now, for this person where that is known."""
    return flavor.price_per_hour if flavor.quote is None else flavor.quote.price_per_hour


def plainest(environments: Sequence[EnvironmentView]) -> str | None:
    """`minimal` where it is offered, else the first."""
    offered = [one.id for one in environments if one.available]
    return "minimal" if "minimal" in offered else next(iter(offered), None)
