"""Starts and stops of servers through JupyterHub's API, and what runs for a lease."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from allotment_testing.hub_process import HubProcess, until

__all__ = ["CPU", "TEN", "ask", "gone", "processes_of", "ready", "stop"]

TEN = {"environment": "minimal", "flavor": "gpu-10gb"}
CPU = {"environment": "minimal", "flavor": "cpu"}


async def ask(hub: HubProcess, user: str, options: object = None, server: str = "") -> httpx.Response:
    """POST a start as JupyterHub's API takes it; an empty body when `options` is None."""
    await hub.add_user(user)
    async with hub.client() as api:
        return await api.post(
            _path(user, server), json={"user_options": options} if options is not None else None
        )


async def stop(hub: HubProcess, user: str, server: str = "") -> httpx.Response:
    async with hub.client() as api:
        return await api.delete(_path(user, server))


async def ready(hub: HubProcess, user: str, server: str = "") -> dict[str, Any]:
    """The hub's model of the server once it is ready."""

    async def look() -> dict[str, Any] | None:
        model = await hub.server(user, server)
        return model if model and model["ready"] else None

    found: dict[str, Any] = await until(look, what="the server is ready", limit_s=60)
    return found


async def gone(hub: HubProcess, user: str, server: str = "") -> None:
    async def look() -> bool:
        model = await hub.server(user, server)
        return model is None or bool(model["stopped"])

    await until(look, what="the server is gone", limit_s=30)


def processes_of(lease: str) -> list[int]:
    """Pids of all that bear the lease in their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if f"ALLOTMENT_LEASE={lease}\0".encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except (OSError, ValueError):
            continue
    return found


def _path(user: str, server: str) -> str:
    return f"/users/{user}/servers/{server}" if server else f"/users/{user}/server"
