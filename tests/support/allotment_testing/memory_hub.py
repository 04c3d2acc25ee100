"""A hub that knows its servers' states and people's groups, and can be away."""

from __future__ import annotations

from allotment_hub.broker.services.ports import HubUnavailable, ServerState

__all__ = ["MemoryHub"]


class MemoryHub:
    """`HubView` over two dictionaries; outlives every broker."""

    def __init__(self) -> None:
        self.servers: dict[tuple[str, str], ServerState] = {}
        self.groups: dict[str, frozenset[str]] = {}
        self.away = False
        self.asked = 0
        self.stop_requests: list[tuple[str, str]] = []

    async def groups_of(self, user: str) -> frozenset[str]:
        self._answer()
        return self.groups.get(user, frozenset())

    async def server_state(self, user: str, server: str) -> ServerState:
        self._answer()
        self.asked += 1
        return self.servers.get((user, server), "absent")

    async def stop_server(self, user: str, server: str) -> None:
        self._answer()
        self.stop_requests.append((user, server))

    def _answer(self) -> None:
        if self.away:
            raise HubUnavailable("The hub does not answer.")
