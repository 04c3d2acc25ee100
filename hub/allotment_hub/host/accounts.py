"""Local accounts, made through the running hub: nobody else writes its database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from allotment_hub.host.errors import HostError
from allotment_hub.host.probes import Answer, request

__all__ = ["Accounts", "Person"]

PAGE = 200


@dataclass(frozen=True, slots=True)
class Person:
    name: str
    admin: bool
    groups: tuple[str, ...]
    servers: int


class Accounts:
    """Calls the hub's API with a hub admin's token; `HostError` says what the hub refused."""

    def __init__(self, *, api_url: str, token: str) -> None:
        self._api = api_url.rstrip("/")
        self._token = token

    def put(self, name: str, password: str) -> bool:
        """Make the account or give it this password; whether it is new."""
        path = f"/allotment/accounts/{quote(name, safe='')}"
        return self._call("PUT", path, body={"password": password}).status == 201

    def exists(self, name: str) -> bool:
        reply = self._ask("GET", f"/users/{quote(name, safe='')}")
        if reply.status not in (200, 404):
            raise HostError(_refusal(reply))
        return reply.status == 200

    def remove(self, name: str) -> None:
        """End the account and its sessions; its home stays."""
        self._call("DELETE", f"/users/{quote(name, safe='')}", timeout_s=60)

    def people(self) -> list[Person]:
        found: list[Person] = []
        while True:
            page = self._call("GET", f"/users?offset={len(found)}&limit={PAGE}").json() or []
            found += [_person(model) for model in page]
            if len(page) < PAGE:
                return found

    def make_operator(self, name: str, group: str) -> None:
        self._call("POST", f"/groups/{quote(group, safe='')}/users", body={"users": [name]})

    def stop_server(self, name: str, server: str) -> None:
        path = f"/users/{quote(name, safe='')}/" + (
            f"servers/{quote(server, safe='')}" if server else "server"
        )
        reply = self._ask("DELETE", path, timeout_s=30)
        if reply.status not in (202, 204, 404):
            raise HostError(_refusal(reply))

    def servers(self) -> list[tuple[str, str]]:
        """(person, server name) of every session that runs or starts."""
        found = []
        offset = 0
        while True:
            page = self._call("GET", f"/users?state=active&offset={offset}&limit={PAGE}").json() or []
            offset += len(page)
            for model in page:
                found += [(str(model["name"]), str(server)) for server in model.get("servers") or {}]
            if len(page) < PAGE:
                return found

    def _ask(
        self, method: str, path: str, *, body: dict[str, Any] | None = None, timeout_s: float = 20
    ) -> Answer:
        return request(self._api + path, method=method, token=self._token, body=body, timeout_s=timeout_s)

    def _call(
        self, method: str, path: str, *, body: dict[str, Any] | None = None, timeout_s: float = 20
    ) -> Answer:
        reply = self._ask(method, path, body=body, timeout_s=timeout_s)
        if not reply.ok:
            raise HostError(_refusal(reply))
        return reply


def _person(model: dict[str, Any]) -> Person:
    return Person(
        name=str(model["name"]),
        admin=bool(model.get("admin")),
        groups=tuple(sorted(model.get("groups") or ())),
        servers=len(model.get("servers") or {}),
    )


def _refusal(reply: Answer) -> str:
    if reply.status == 0:
        return f"The hub does not answer ({reply.problem}); is it running? ./deploy/up starts it."
    found = reply.json()
    message = found.get("message") if isinstance(found, dict) else None
    return f"The hub refused: {message or reply.status}."
