"""The hub's proxy, which calls a server's pages once more before it takes the server's route away."""

from __future__ import annotations

from typing import Any

from jupyterhub.proxy import ConfigurableHTTPProxy

from allotment_spawner.spawners.mixin import GpuSpawnerMixin

__all__ = ["LastCallProxy"]


class LastCallProxy(ConfigurableHTTPProxy):
    """JupyterHub removes the route first and only then asks the spawner to stop: in the spawner it would be
    too late, because the pages could not reach their server any more."""

    async def delete_user(self, user: Any, server_name: str = "") -> None:
        """Wait for the pages a few seconds at most, then as always."""
        spawner = user.spawners[server_name] if server_name in user.spawners else None  # noqa: SIM401 - no dict
        if isinstance(spawner, GpuSpawnerMixin):
            await spawner.last_call()
        await super().delete_user(user, server_name)
