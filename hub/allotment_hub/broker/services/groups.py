"""A person's groups, asked of the hub, for rules that name groups."""

from __future__ import annotations

from allotment_spawner.core.errors import BrokerUnavailable

from allotment_hub.broker.services.ports import HubUnavailable, HubView

__all__ = ["groups_of"]


async def groups_of(hub: HubView, user: str) -> frozenset[str]:
    """Raises `BrokerUnavailable` while the hub does not answer."""
    try:
        return await hub.groups_of(user)
    except HubUnavailable as error:
        raise BrokerUnavailable(
            "It cannot be checked right now what your groups may use: the hub does not answer.",
            "Try again in a moment.",
        ) from error
