"""The parts of a broker that mind disks and scratch folders, wired to each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from allotment_spawner.disk.base import FolderVerbs, RootState
from allotment_spawner.disk.space import Space, space_of
from allotment_spawner.wire import Work

from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.changes import Changes, Signals
from allotment_hub.broker.services.disk import Disk
from allotment_hub.broker.services.extras import Extra
from allotment_hub.broker.services.jobs import Jobs
from allotment_hub.broker.services.notices import Notices
from allotment_hub.broker.services.observe import Observations
from allotment_hub.broker.services.owners import Owners
from allotment_hub.broker.services.places import Storage, places_of
from allotment_hub.broker.services.scratch import Emptier, Scratch
from allotment_hub.broker.services.scratch_watch import ScratchWatch
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.store import Store
from allotment_hub.paths import Paths
from allotment_hub.runtime import Runtime
from allotment_hub.site import Site

__all__ = ["DiskParts", "Room"]

_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Room:
    """What this machine offers: `folders` by the agent; `emptier` only where the agent is not root;
    `storage` tells where the engine keeps its data."""

    folders: FolderVerbs
    emptier: Emptier | None = None
    storage: Storage | None = None
    space: Callable[[Path], Space | None] = space_of
    ballast_bytes: int = 0
    """Kept back for the database."""


@dataclass
class DiskParts:
    """`room` None: nothing is known of disks, so nothing is refused, and there is no scratch."""

    site: Site
    runtime: Runtime
    paths: Paths
    room: Room | None
    owners: Owners
    store: Store
    book: Book
    observations: Observations
    jobs: Jobs
    notices: Notices
    signals: Signals
    changes: Changes
    kick: Callable[[], asyncio.Future[None]]
    clock: Callable[[], datetime]

    @cached_property
    def disk(self) -> Disk:
        room = self.room
        return Disk(
            floor_bytes=int(self.site.disk.floor_gib * _GIB),
            places=places_of(
                site=self.site,
                runtime=self.runtime,
                paths=self.paths,
                storage=None if room is None else room.storage,
            ),
            changes=self.changes,
            kick=self.kick,
            scratch_root=self._scratch_root,
            space=(lambda _path: None) if room is None else room.space,
        )

    @cached_property
    def scratch(self) -> Scratch | None:
        if self.room is None or self.runtime.engine != "docker":
            return None
        size_bytes = int(self.site.scratch.size_gib * _GIB)
        watch = ScratchWatch(size_bytes=size_bytes, folders=self.room.folders, notices=self.notices)
        return Scratch(
            size_bytes=size_bytes,
            folders=self.room.folders,
            owners=self.owners,
            emptier=self.room.emptier,
            store=self.store,
            book=self.book,
            observations=self.observations,
            jobs=self.jobs,
            watch=watch,
            signals=self.signals,
            kick=self.kick,
            clock=self.clock,
        )

    @property
    def first(self) -> tuple[Extra, ...]:
        """What is checked before everything else."""
        return (self.disk,)

    @property
    def last(self) -> tuple[Extra, ...]:
        """What is made only for who passed all else."""
        return () if self.scratch is None else (self.scratch,)

    @property
    def loops(self) -> tuple[Callable[[], Coroutine[Any, Any, None]], ...]:
        always = (self.disk.run, self.store.keep_ballast)
        return always if self.scratch is None else (*always, self.scratch.run)

    def being_made(self, lease: Lease) -> bool:
        """Whether its folder is there in a moment."""
        return self.scratch is not None and self.scratch.being_made(lease)

    def waits_for(self, others: Callable[[Lease], Work | None]) -> Callable[[Lease], Work | None]:
        """What a queued lease waits for besides a device: room on the disk, or what the others say."""

        def waits(lease: Lease) -> Work | None:
            why = self.disk.reason()
            return others(lease) if why is None else Work(sentence=f"Waiting for room. {why}")

        return waits

    def listen(self, changed: Sequence[Lease]) -> None:
        """After each commit."""
        if self.scratch is not None:
            self.scratch.listen(changed)

    async def _scratch_root(self) -> RootState | None:
        return None if self.scratch is None else await self.scratch.root()
