"""Shared folders of this machine inside sessions: who sees which, and whether they are there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from allotment_spawner.core.errors import DatasetUnavailable, Refusal
from allotment_spawner.wire import Launch, MountSpec, MountView

from allotment_hub.broker.services.extras import Ask
from allotment_hub.broker.services.pools import EVERYONE, may_use
from allotment_hub.broker.store.records import Lease
from allotment_hub.data.folders import MountFolders
from allotment_hub.site import Mount

__all__ = ["Mounts", "MountsApi"]

_log = logging.getLogger(__name__)


class MountsApi(Protocol):
    async def views(self, user: str) -> list[MountView]:
        """The folders that this person's sessions see."""


class Mounts:
    """Implements `MountsApi` and `Extra`. `in_containers`: False on an engine without mounts: none there."""

    def __init__(
        self,
        *,
        mounts: Sequence[Mount],
        in_containers: bool,
        folders: MountFolders,
        groups_of: Callable[[str], Awaitable[frozenset[str]]],
    ) -> None:
        self._mounts = tuple(mounts) if in_containers else ()
        self._folders = folders
        self._groups_of = groups_of
        self.needs_groups = any(mount.read != EVERYONE or mount.write for mount in self._mounts)

    def _for(self, groups: frozenset[str]) -> list[tuple[Mount, bool]]:
        """The mounts of a person in these groups, and whether they may write there."""
        found = [(mount, may_use(mount.write, groups)) for mount in self._mounts]
        return [(mount, write) for mount, write in found if write or may_use(mount.read, groups)]

    async def views(self, user: str) -> list[MountView]:
        groups = await self._groups_of(user) if self.needs_groups else frozenset()
        return [
            MountView(name=mount.name, title=mount.title, path=mount.inside, writable=write)
            for mount, write in self._for(groups)
        ]

    async def check(self, ask: Ask) -> Mapping[str, Any]:
        """A session without a folder that it should have would be a quiet lie: refused, with its name."""
        wanted = self._for(ask.groups)
        if not wanted:
            return {}
        problems = await asyncio.gather(*(self._folders.problem(mount) for mount, _ in wanted))
        for (mount, _), problem in zip(wanted, problems, strict=True):
            if problem is not None:
                _log.error("a shared folder cannot be mounted", extra={"mount": mount.name, "why": problem})
                raise _not_there(mount)
        return {"mounts": [{"name": mount.name, "write": write} for mount, write in wanted]}

    def ready(self, lease: Lease) -> bool:
        """After a restart nobody has looked at the folders yet; what they were may be another one now."""
        wanted = [mount for mount, _ in self._asked_by(lease)]
        for mount in wanted:
            if self._folders.found(mount) is None:
                self._folders.ask(mount)
        found = [self._folders.found(mount) for mount in wanted]
        return all(one is not None and one.problem is None for one in found)

    def problem(self, lease: Lease) -> Refusal | None:
        for mount, _ in self._asked_by(lease):
            found = self._folders.found(mount)
            if found is not None and found.problem is not None:
                return _not_there(mount)
        return None

    def complete(self, lease: Lease, launch: Launch) -> Launch:
        mounts = tuple(
            MountSpec(source=found.real, target=mount.inside, read_only=not write)
            for mount, write in self._asked_by(lease)
            if (found := self._folders.found(mount)) is not None
        )
        return launch.model_copy(update={"mounts": (*launch.mounts, *mounts)}) if mounts else launch

    def _asked_by(self, lease: Lease) -> list[tuple[Mount, bool]]:
        """By today's configuration: a mount that it has no more is gone, also for who asked before."""
        asked = {one["name"]: bool(one["write"]) for one in (lease.wants or {}).get("mounts", ())}
        return [(mount, asked[mount.name]) for mount in self._mounts if mount.name in asked]


def _not_there(mount: Mount) -> DatasetUnavailable:
    return DatasetUnavailable(
        f"The shared folder {mount.name} cannot be had on this machine now.",
        "Tell an operator: `allot doctor` says what is wrong with it.",
    )
