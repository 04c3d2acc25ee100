"""What the services need from the hub, as a small interface."""

from __future__ import annotations

from typing import Literal, Protocol

__all__ = ["HubUnavailable", "HubView", "ServerState"]

ServerState = Literal["ready", "spawning", "stopping", "absent"]


class HubUnavailable(Exception):
    """The hub did not answer: unknown, which is never the same as absent."""


class HubView(Protocol):
    """The hub's API as the broker uses it. Every method raises `HubUnavailable`."""

    async def groups_of(self, user: str) -> frozenset[str]:
        """Names of the person's groups at the hub; empty for a person the hub does not know."""

    async def server_state(self, user: str, server: str) -> ServerState:
        """`ready`; `spawning` or `stopping` while the hub says so; `absent` when it knows no such server."""

    async def stop_server(self, user: str, server: str) -> None:
        """Ask the hub to stop this server; one that is absent is no error."""
