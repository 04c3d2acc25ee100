"""A scratch folder for each session alone: made before the grant, wiped when the lease is ended."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from allotment_spawner.core.errors import AgentUnavailable, Refusal
from allotment_spawner.core.lease import LeaseState
from allotment_spawner.disk.base import Folder, FolderVerbs, RootState
from allotment_spawner.launch.container import Owner
from allotment_spawner.wire import Launch, ScratchSpec

from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.changes import Signals
from allotment_hub.broker.services.extras import Ask
from allotment_hub.broker.services.jobs import Jobs
from allotment_hub.broker.services.observe import Observations
from allotment_hub.broker.services.owners import Owners
from allotment_hub.broker.services.scratch_watch import ScratchWatch
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.store import Store

__all__ = ["Emptier", "Scratch"]

_log = logging.getLogger(__name__)
_ROUND_S: Final = 60.0
_PATIENCE: Final = timedelta(seconds=5)
"""How long a start waits for an agent that does not answer; then it goes on without a scratch folder."""
_AGAIN_S: Final = 1.0
_LEASE_ID: Final = re.compile(r"[0-9a-f]{16}")


class Emptier(Protocol):
    """Where the agent is not root: removes what a session wrote, as the session's own user."""

    async def empty(self, path: str, lease_id: str, owner: Owner) -> None:
        """Raises `EngineUnavailable`."""


class Scratch:
    """The part "scratch" of a start. All that is remembered here is found again after a restart: folders by
    their names, sizes by asking."""

    needs_groups = False

    def __init__(
        self,
        *,
        size_bytes: int,
        folders: FolderVerbs,
        owners: Owners,
        emptier: Emptier | None,
        store: Store,
        book: Book,
        observations: Observations,
        jobs: Jobs,
        watch: ScratchWatch,
        signals: Signals,
        kick: Callable[[], asyncio.Future[None]],
        clock: Callable[[], datetime],
    ) -> None:
        """`emptier` None: the agent may remove everything."""
        self._size = size_bytes
        self._folders = folders
        self._owners = owners
        self._emptier = emptier
        self._store = store
        self._book = book
        self._seen = observations
        self._jobs = jobs
        self._watch = watch
        self._signals = signals
        self._kick = kick
        self._clock = clock
        self._made: dict[str, Folder] = {}
        self._making: set[str] = set()
        self._failing: dict[str, datetime] = {}
        """Lease -> since when its folder cannot be made."""
        self._without: dict[str, str] = {}
        """Lease -> why it starts without one."""

    # Extra
    async def check(self, ask: Ask) -> Mapping[str, Any]:
        return {}

    def ready(self, lease: Lease) -> bool:
        if lease.id in self._made or lease.id in self._without:
            return True
        if self._jobs.start(f"scratch-{lease.id}", lambda: self._make(lease)):
            self._making.add(lease.id)
        return False

    def being_made(self, lease: Lease) -> bool:
        """Also between two tries, while an agent that does not answer is waited for."""
        tried = lease.id in self._failing and lease.id not in self._without
        return lease.id in self._making or tried

    def problem(self, lease: Lease) -> Refusal | None:
        return None

    def complete(self, lease: Lease, launch: Launch) -> Launch:
        folder = self._made.get(lease.id)
        if folder is None:
            return launch
        spec = ScratchSpec(source=folder.path, size_bytes=self._size, enforced=folder.enforced)
        return launch.model_copy(update={"scratch": spec})

    async def _make(self, lease: Lease) -> None:
        try:
            made = await self._try(lease)
            if made and self._book.get(lease.id) is None:
                await self._wipe(lease)  # it ended meanwhile
            elif made:
                await self._kick()
        finally:
            self._making.discard(lease.id)
            # whoever waits for a quick grant goes on, granted or not
            self._signals.touch([lease.id])

    async def _try(self, lease: Lease) -> bool:
        """Whether the start can go on, with a folder or without."""
        try:
            owner = await self._owners.of(lease.user)
            folder = await self._folders.make_folder(
                "scratch", lease.id, uid=owner.uid, gid=owner.gid, mode=0o700, limit_bytes=self._size
            )
        except Refusal as refusal:
            if not self._gives_up(lease, refusal):
                asyncio.get_running_loop().call_later(_AGAIN_S, self._kick)
                return False
        else:
            self._made[lease.id] = folder
            self._failing.pop(lease.id, None)
        return True

    def _gives_up(self, lease: Lease, refusal: Refusal) -> bool:
        """A session without scratch is better than none; nothing is said to be there that is not."""
        now = self._clock()
        # a clock that was set back must not make it wait until the old time comes again
        since = self._failing[lease.id] = min(self._failing.get(lease.id, now), now)
        silent = isinstance(refusal, AgentUnavailable) and "verb" in refusal.details
        if silent and now - since < _PATIENCE:
            return False
        _log.warning("no scratch folder", extra={"lease": lease.id, "why": refusal.sentence})
        self._without[lease.id] = refusal.sentence
        return True

    # the end
    def listen(self, changed: Sequence[Lease]) -> None:
        """After each commit: wipe the folders of leases that are ended."""
        for lease in changed:
            if lease.state is LeaseState.ENDED and (lease.granted_at is not None or lease.id in self._made):
                self._start_wipe(lease)

    def _start_wipe(self, lease: Lease) -> None:
        self._jobs.start(f"wipe-{lease.id}", lambda: self._wipe(lease))

    async def _wipe(self, lease: Lease) -> None:
        """What fails here is found by the next round."""
        try:
            if self._emptier is not None and (path := await self._path_of(lease.id)) is not None:
                owner = await self._owners.of(lease.user)
                await self._emptier.empty(path, lease.id, owner)
            await self._folders.remove_folder("scratch", lease.id)
        except Refusal as refusal:
            _log.warning("scratch not wiped yet", extra={"lease": lease.id, "why": refusal.sentence})
            return
        for kept in (self._made, self._failing, self._without):
            kept.pop(lease.id, None)
        self._watch.forget(lease)

    async def _path_of(self, lease_id: str) -> str | None:
        if lease_id not in await self._folders.list_folders("scratch"):
            return None
        return f"{(await self._folders.folder_root('scratch')).path}/{lease_id}"

    # upkeep
    async def run(self) -> None:
        """Rounds until cancelled."""
        while True:
            try:
                await self.round()
            except Refusal as refusal:
                _log.warning("scratch folders could not be looked at", extra={"why": refusal.sentence})
            except Exception:  # noqa: BLE001 - one bad round must not stop all later ones
                _log.exception("scratch folders could not be looked at; the next round tries again")
            await asyncio.sleep(_ROUND_S)

    async def round(self) -> None:
        """Wipe what ended leases left, and tell whoever holds more than is allowed."""
        await self._sweep()
        for lease in self._book.in_state(LeaseState.ACTIVE):
            if lease.launch is not None and lease.launch.get("scratch"):
                await self._watch.fullness(lease)
            elif lease.id in self._without:
                await self._watch.none(lease, self._without[lease.id])

    async def root(self) -> RootState | None:
        """What limits the folders; None is unknown."""
        try:
            return await self._folders.folder_root("scratch")
        except Refusal:
            return None

    async def _sweep(self) -> None:
        """Names first, the book after: a lease made in between is in the book."""
        names = await self._folders.list_folders("scratch")
        if self._seen.engine_problem is not None:
            return  # unknown is not gone: a container may still use it
        for name in names:
            lives = self._book.get(name) is not None or name in self._seen.workloads
            if lives or not _LEASE_ID.fullmatch(name):
                continue
            found = await self._store.read(lambda tx, name=name: tx.lease(name))  # type: ignore[misc]
            if found is not None and found.state is LeaseState.ENDED:
                self._start_wipe(found)
            elif found is None:
                _log.warning("a scratch folder of an unknown lease is left alone", extra={"lease": name})
