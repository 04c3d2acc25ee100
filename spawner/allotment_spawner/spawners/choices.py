"""What a person can pick now and what would happen, in words and as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from allotment_spawner.core.errors import BrokerUnavailable
from allotment_spawner.spawners.belongings import belongings_of
from allotment_spawner.spawners.broker_client import BrokerClient
from allotment_spawner.spawners.defaults import cheapest_without_gpu, needs_gpu, plainest
from allotment_spawner.spawners.money import budgets_of, money_of
from allotment_spawner.spawners.options import Choice
from allotment_spawner.spawners.versions import version_options
from allotment_spawner.wire import EnvironmentView, FlavorView

__all__ = ["choices_for", "hardware", "outcome", "preselected"]

_GIB = 2**30
_PATIENCE_S = 4.0


async def choices_for(broker: BrokerClient, user: str, *, last: Choice | None = None) -> dict[str, Any]:
    """{"flavors": FlavorViews with outcome, tone, hardware, price and money, "environments": with the
    versions to choose from, "waiting", "defaults", "budgets", "charge_to", "home", "mounts", "datasets",
    "closed"}.

    `waiting` is how many people are in the queue. `last` names the version that a person runs already.
    Raises `BrokerUnavailable` within seconds: somebody looks at an empty page meanwhile.
    """
    try:
        async with asyncio.timeout(_PATIENCE_S):
            flavors, environments, waiting, belongings = await asyncio.gather(
                broker.flavors(user), broker.environments(user), _waiting(broker), belongings_of(broker, user)
            )
    except TimeoutError:
        raise BrokerUnavailable(
            "Allotment's broker, which hands out the devices, does not answer.",
            "Try again in a minute; tell an operator if it stays.",
        ) from None
    return {
        "flavors": [_flavor(one, waiting, datetime.now(UTC)) for one in flavors],
        "environments": [_environment(one, last or Choice()) for one in environments],
        "waiting": waiting,
        "defaults": {"environment": plainest(environments), "flavor": cheapest_without_gpu(flavors)},
        **budgets_of(flavors),
        **belongings,
    }


def preselected(choices: Mapping[str, Any], last: Choice) -> dict[str, Any]:
    """`last` as far as it can run now, with this site's defaults in place of what cannot."""

    def pick(offered: Sequence[Mapping[str, Any]], key: str, wanted: str | None) -> str | None:
        possible = {one["id"] for one in offered if one["available"]}
        chosen: str | None = wanted if wanted in possible else choices["defaults"][key]
        return chosen

    environment = pick(choices["environments"], "environment", last.environment)
    flavor = pick(choices["flavors"], "flavor", last.flavor)
    reasons = next((one.get("reasons") for one in choices["environments"] if one["id"] == environment), None)
    if flavor in (reasons or {}):
        flavor = choices["defaults"]["flavor"]
    possible = {one["name"] for one in choices.get("datasets") or ()}
    return {
        "environment": environment,
        "flavor": flavor,
        "datasets": [name for name in last.datasets if name in possible],
        "charge_to": last.charge_to if last.charge_to in (choices.get("charge_to") or ()) else "",
        "app": last.app or "lab",
        "repo": last.repo or "",
        "branch": last.branch or "",
        "urlpath": last.urlpath or "",
    }


def outcome(flavor: FlavorView, waiting: int | None) -> tuple[str, str]:
    """(tone, sentence): what happens if this flavor is started now. Tones: now, wait, no."""
    if not flavor.available:
        return "no", flavor.reason or "Not available here."
    if not needs_gpu(flavor):
        return "now", "Starts now."
    if flavor.free is None:
        return "wait", "How many are free is unknown."
    if flavor.free > 0:
        of = "" if flavor.total is None else f" of {flavor.total}"
        return "now", f"Starts now: {flavor.free}{of} free."
    return "wait", f"None free. You would wait{_before(waiting)}{_how_long(flavor.expected_wait_s)}."


def hardware(flavor: FlavorView) -> str:
    """ "1g.10gb slice of an A100 · 2 CPUs · 8 GB memory"."""
    parts = [part for part in (_gpu(flavor.resources.get("gpu")),) if part]
    cpu = flavor.resources.get("cpu")
    if isinstance(cpu, int | float):
        parts.append(f"{cpu:g} CPU{'s' * (cpu != 1)}")
    memory = flavor.resources.get("memory_bytes")
    if isinstance(memory, int):
        parts.append(f"{memory / _GIB:g} GB memory")
    return " · ".join(parts)


def _environment(environment: EnvironmentView, last: Choice) -> dict[str, Any]:
    wanted = last.version if last.environment in (None, environment.id) else None
    return {**environment.model_dump(mode="json"), "choice": version_options(environment, wanted)}


def _flavor(flavor: FlavorView, waiting: int | None, now: datetime) -> dict[str, Any]:
    refusal = None if flavor.quote is None else flavor.quote.refusal
    if flavor.available and refusal is not None:
        flavor = flavor.model_copy(update={"available": False, "reason": refusal})
    tone, sentence = outcome(flavor, waiting)
    money = money_of(flavor, now)
    return {
        **flavor.model_dump(mode="json"),
        "gpu": needs_gpu(flavor),
        "tone": tone,
        "outcome": sentence,
        "hardware": hardware(flavor),
        "price": money["price"],
        "money": money,
    }


async def _waiting(broker: BrokerClient) -> int | None:
    """The last place in the queue. Live leases come newest first, and the newest waiter is the last."""
    places = [one.place for one in await broker.leases(live=True, limit=50) if one.place is not None]
    return max(places, default=0)


def _before(waiting: int | None) -> str:
    if waiting is None:
        return ""
    if waiting == 0:
        return " as the first in line"
    return f"; {waiting} {'person' if waiting == 1 else 'people'} before you"


def _how_long(seconds: float | None) -> str:
    if seconds is None:
        return ", how long is not known"
    minutes = max(1, round(seconds / 60))
    return f", about {minutes} minute{'s' * (minutes != 1)}"


def _gpu(gpu: object) -> str:
    if not isinstance(gpu, Mapping) or gpu.get("kind") == "none":
        return ""
    count, model, profile = gpu.get("count") or 1, gpu.get("model") or "GPU", gpu.get("profile")
    if gpu.get("kind") == "slice":
        return f"{profile} slice of {model}" if profile else f"Slice of {model}"
    return f"{count} × {model}" if count != 1 else f"Whole {model}"
