"""The part "home" of a start: whose files it holds is known before anybody waits, and its folder is there."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from allotment_spawner.core.errors import Refusal
from allotment_spawner.disk.base import FolderVerbs
from allotment_spawner.engines.home_gauge import HomeGauge, HomeUsage
from allotment_spawner.launch.container import Owner
from allotment_spawner.wire import Launch

from allotment_hub.broker.services.extras import Ask
from allotment_hub.broker.services.owners import Owners
from allotment_hub.broker.store.records import Lease

__all__ = ["HomeFolders", "HomePart", "QuotaGauge"]

_log = logging.getLogger(__name__)


class HomeFolders:
    """Homes that are folders of this host, through an agent that may give them away.

    `name_of` is a person's path below the agent's root of homes.
    """

    def __init__(
        self, *, folders: FolderVerbs, name_of: Callable[[str], str], limit_bytes: int | None
    ) -> None:
        self._folders = folders
        self._name_of = name_of
        self._limit = limit_bytes

    async def make(self, user: str, owner: Owner) -> bool | None:
        """Whether the limit is enforced; None when the agent cannot make it (the spawner says what then)."""
        try:
            made = await self._folders.make_folder(
                "homes",
                self._name_of(user),
                uid=owner.uid,
                gid=owner.gid,
                mode=0o700,
                limit_bytes=self._limit,
            )
        except Refusal as refusal:
            _log.warning("no home made", extra={"user": user, "why": refusal.sentence})
            return None
        return made.enforced and self._limit is not None

    async def usage(self, user: str) -> HomeUsage | None:
        """As the file system's own quota counts it; None where it does not, or where files may evade it."""
        try:
            found = await self._folders.folder_usage("homes", self._name_of(user))
        except Refusal:
            return None
        if found is None or found.watch or found.used_bytes is None or found.files is None:
            return None
        return HomeUsage(used_bytes=found.used_bytes, files=found.files)


class QuotaGauge:
    """Asks the file system's quota first, which answers at once; `measured` walks through the home."""

    def __init__(self, *, folders: HomeFolders, measured: HomeGauge) -> None:
        self._folders = folders
        self._measured = measured

    async def measure(self, user: str) -> HomeUsage | None:
        return await self._folders.usage(user) or await self._measured.measure(user)


class HomePart:
    """`folders` None: the engine makes homes (volumes), or the spawner does. `limited` is told whether the
    file system refuses more than the limit."""

    needs_groups = False

    def __init__(
        self,
        *,
        owners: Owners,
        folders: HomeFolders | None,
        limited: Callable[[str, bool], Awaitable[None]],
    ) -> None:
        self._owners = owners
        self._folders = folders
        self._limited = limited

    async def check(self, ask: Ask) -> Mapping[str, Any]:
        """Raises `HomeUnavailable` for who is no account here: better now than after the wait."""
        user = ask.body.user
        owner = await self._owners.of(user)
        if self._folders is not None:
            enforced = await self._folders.make(user, owner)
            if enforced is not None:
                await self._limited(user, enforced)
        return {}

    def ready(self, lease: Lease) -> bool:
        return True

    def problem(self, lease: Lease) -> Refusal | None:
        return None

    def complete(self, lease: Lease, launch: Launch) -> Launch:
        return launch
