"""Empties a scratch folder as the session's own user, where the agent is not root."""

from __future__ import annotations

from typing import Final

from allotment_spawner.core.errors import EngineUnavailable
from allotment_spawner.daemon_threads import DaemonThreads
from allotment_spawner.engines.helpers import Helpers
from allotment_spawner.launch.container import Owner
from allotment_spawner.launch.helper import HelperMount

__all__ = ["DockerEmptier"]

_INSIDE: Final = "/mnt/scratch"
_SCRIPT: Final = """
find "$1" -mindepth 1 -type d ! -perm -700 -exec chmod u+rwx {} \\;
find "$1" -mindepth 1 -delete
"""
"""find never follows links, and the kernel bounds neither depth nor names for it."""
_LIMIT_S: Final = 600.0


class DockerEmptier:
    """Two helpers at a time at most."""

    def __init__(self, *, installation: str, base_url: str) -> None:
        self._helpers = Helpers(installation=installation, base_url=base_url)
        # a million files take minutes, for which no broker that stops may wait
        self._threads = DaemonThreads(2, name="emptier")

    async def empty(self, path: str, lease_id: str, owner: Owner) -> None:
        await self._threads.run(lambda: self.empty_now(path, lease_id, owner))

    def empty_now(self, path: str, lease_id: str, owner: Owner) -> None:
        """Blocking. Raises `EngineUnavailable`."""
        done = self._helpers.run(
            "scratch",
            lease_id,
            argv=["sh", "-c", _SCRIPT, "empty", _INSIDE],
            owner=owner,
            mounts=[HelperMount(kind="bind", source=path, target=_INSIDE, read_only=False)],
            limit_s=_LIMIT_S,
        )
        if done.code != 0:
            raise EngineUnavailable(
                f"A scratch folder could not be emptied: {done.complaint}.", "It is tried again in a minute."
            )
