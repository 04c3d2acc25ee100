"""Brings datasets into the cache, one download for all who wait, and makes room for them."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from allotment_spawner.core.errors import DatasetUnavailable, DiskFull, Refusal
from allotment_spawner.daemon_threads import DaemonThreads

from allotment_hub.broker.services.dataset_shelf import DatasetShelf
from allotment_hub.broker.services.jobs import Jobs
from allotment_hub.broker.store import datasets as table
from allotment_hub.broker.store.datasets import ABSENT, FAILED, FETCHING, READY, Dataset
from allotment_hub.broker.store.store import Store
from allotment_hub.data.cache import Cache
from allotment_hub.data.shelf import choose, over_bytes
from allotment_hub.data.spec import FetchSpec, Manifest, Progress
from allotment_hub.site import DatasetSettings

__all__ = ["DatasetFetching", "Fetch"]

_log = logging.getLogger(__name__)
_GIB = 2**30
_AT_ONCE = 4
_AHEAD_BYTES = 256 * 2**20

Fetch = Callable[[FetchSpec, Callable[[Progress], None]], Awaitable[Manifest]]


class DatasetFetching:
    """`want` is idempotent. `changed(name)` is called on the loop whenever a state or progress changed."""

    def __init__(
        self,
        *,
        settings: DatasetSettings,
        floor_bytes: int,
        secret: Path,
        cache: Cache,
        shelf: DatasetShelf,
        store: Store,
        jobs: Jobs,
        fetch: Fetch,
        changed: Callable[[str], None],
        clock: Callable[[], datetime],
        on_step: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._limit_bytes = int(settings.limit_gib * _GIB)
        self._floor_bytes = floor_bytes
        self._secret = secret
        self._cache = cache
        self._shelf = shelf
        self._store = store
        self._jobs = jobs
        self._fetch = fetch
        self._changed = changed
        self._clock = clock
        self._on_step = on_step
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._moving = asyncio.Lock()
        # a million files take a while, for which no broker that stops may wait
        self._emptying = DaemonThreads(1, name="dataset-trash")

    def want(self, name: str) -> None:
        """Have it fetched unless it is here or on its way; what failed before is tried again."""
        row = self._shelf.find(name)
        if row is None or row.state == READY or self._jobs.running(f"dataset-{name}"):
            return
        self._shelf.change(name, state=FETCHING, problem=None)
        self._jobs.start(f"dataset-{name}", lambda: self._bring(name))
        self._changed(name)

    async def used(self, name: str) -> None:
        """Somebody asked for it: it is the last to leave."""
        now = self._clock()
        self._shelf.change(name, used_at=now)
        await self._write("dataset.used", name, used_at=now)

    def tell(self, name: str) -> None:
        """Something about it changed that people see."""
        self._changed(name)

    async def stop(self, name: str) -> None:
        """End a fetch that nobody wants any more; what it has is kept for the next one."""
        task = self._tasks.get(name)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _bring(self, name: str) -> None:
        row = self._shelf.get(name)
        task = asyncio.current_task()
        assert task is not None
        self._tasks[name] = task
        try:
            await self._write("dataset.want", name, state=FETCHING, problem=None)
            if await self._is_here(row):
                return
            async with self._slots:
                manifest = await self._run(row)
            # what came faster than it was followed: the others leave now
            await self.make_room(name, 0, has=manifest.size_bytes)
            async with self._moving:
                await asyncio.to_thread(self._cache.adopt, self._shelf.key(row))
            self._on_step("dataset.adopted")
            await self.arrived(row, manifest)
        except Refusal as refusal:
            await self._fail(row, refusal)
        except OSError as error:
            _log.error("the cache of datasets cannot be written", exc_info=error)
            await self._fail(row, cache_broken(error))
        finally:
            self._tasks.pop(name, None)
            self._shelf.progress.pop(name, None)
            self._changed(name)

    async def _is_here(self, row: Dataset) -> bool:
        """Another source was registered and this one again: a session may still have the content mounted, so
        it is neither fetched again nor replaced."""
        async with self._moving:
            found = await asyncio.to_thread(self._cache.manifest, self._shelf.key(row))
        if found is None or (row.checksum or row.content) not in (None, found.checksum):
            return False
        await self.arrived(row, found)
        return True

    async def arrived(self, row: Dataset, manifest: Manifest) -> None:
        """It is in the cache: the book follows the disk."""
        if not self._same(row):
            return  # registered anew meanwhile: the sweep removes what came
        now = self._clock()
        found = {"content": manifest.checksum, "cached_bytes": manifest.size_bytes, "files": manifest.files}
        values: dict[str, Any] = {"state": READY, "problem": None, "cached_at": now, "used_at": now, **found}
        self._shelf.change(row.name, **values)
        await self._write("dataset.ready", row.name, **values)

    def _same(self, row: Dataset) -> bool:
        now = self._shelf.find(row.name)
        return now is not None and self._shelf.key(now) == self._shelf.key(row)

    async def _fail(self, row: Dataset, why: Refusal) -> None:
        _log.warning("dataset not fetched", extra={"dataset": row.name, "why": why.sentence})
        if self._same(row):
            if isinstance(why, DiskFull):
                # what came so far only fills the disk further
                async with self._moving:
                    await asyncio.to_thread(self._cache.drop_work, self._shelf.key(row))
                await self._empty()
            problem = {"code": why.code, "sentence": why.sentence, "next_step": why.next_step}
            self._shelf.change(row.name, state=FAILED, problem=problem)
            await self._write("dataset.failed", row.name, state=FAILED, problem=problem)

    async def _run(self, row: Dataset) -> Manifest:
        await self.make_room(row.name, row.size_bytes or row.cached_bytes or 0)
        spec = FetchSpec(
            source=row.source,
            folder=str(self._cache.work_folder(self._shelf.key(row))),
            parent_pid=os.getpid(),
            checksum=row.checksum or row.content,
            unpack=row.unpack,
            limit_bytes=self._most(row.name),
            floor_bytes=self._floor_bytes,
            allow_hosts=self._settings.allow_hosts,
            allow_paths=self._settings.allow_paths,
            s3_endpoint=self._settings.s3_endpoint,
            s3_secret=str(self._secret),
        )

        def progress(now: Progress) -> None:
            self._shelf.progress[row.name] = now
            self._changed(row.name)
            self._jobs.start("datasets-room", lambda: self._follow(row.name))

        return await self._fetch(spec, progress)

    def _most(self, name: str) -> int:
        """What this fetch may take when all that may leave has left."""
        held = sum(one.bytes for one in self._shelf.kept() if one.held)
        return max(self._limit_bytes - held - self._shelf.fetching_bytes(but=name), 0)

    async def _follow(self, name: str) -> None:
        """While data comes whose size nobody knew: others leave as it grows."""
        progress = self._shelf.progress.get(name)
        if progress is not None:
            ahead = min(_AHEAD_BYTES, self._limit_bytes // 100)
            try:
                await self.make_room(name, ahead, has=progress.disk_bytes)
            except DiskFull:
                return  # the fetch itself stops at its own limit and says so

    async def make_room(self, name: str, need_bytes: int, *, has: int = 0) -> None:
        """Drop the least recently used until `need_bytes` more fit beside what `name` `has`. Raises
        `DiskFull`. One at a time: what is free, and what is in use, may change with each."""
        while True:
            free = await asyncio.to_thread(self._cache.free_bytes)
            kept = [one for one in self._shelf.kept() if one.name != name]
            over = over_bytes(
                used_bytes=sum(one.bytes for one in kept) + self._shelf.fetching_bytes(but=name) + has,
                need_bytes=need_bytes,
                limit_bytes=self._limit_bytes,
                free_bytes=free,
                floor_bytes=self._floor_bytes,
            )
            leaving = choose(kept, over)
            if leaving is None:
                raise DiskFull(
                    f"There is no room for the dataset {name}: what is in use or pinned fills the cache.",
                    "Try again when other sessions have ended, or ask an operator to unpin a dataset or "
                    "raise datasets.limit_gib.",
                )
            if not leaving:
                return
            await self.drop(leaving[0])

    async def drop(self, name: str) -> None:
        """Out of the cache; the registry keeps it. Decided and said in one step of the loop, so that no
        lease that asks now can be given what leaves."""
        row = self._shelf.get(name)
        gone: dict[str, Any] = {"state": ABSENT, "problem": None, "cached_at": None}
        self._shelf.change(name, **gone)
        await self._write("dataset.evict", name, **gone)
        try:
            async with self._moving:
                await asyncio.to_thread(self._cache.drop, self._shelf.key(row))
        except OSError as error:
            raise cache_broken(error) from error
        self._on_step("dataset.dropped")
        self._changed(name)
        await self._empty()

    async def sweep(self) -> None:
        """Remove from the disk what the registry and the leases know nothing of."""
        async with self._moving:
            ready = {self._shelf.key(row) for row in self._shelf.all() if row.state in (READY, FETCHING)}
            work = {self._shelf.key(row) for row in self._shelf.all()}
            keep = ready | self._shelf.mounted()
            await asyncio.to_thread(self._cache.sweep, ready=keep, work=work)
        # not waited for: this is also a part of each start, before anybody is served
        self._jobs.start("dataset-trash", self._empty)

    async def _empty(self) -> None:
        """One at a time."""
        for error in await self._emptying.run(self._cache.empty_trash):
            _log.warning("what left the cache of datasets cannot be removed yet: %s", error)

    async def _write(self, step: str, name: str, **values: Any) -> None:
        await self._store.write(step, lambda tx: table.change(tx.connection, name, **values))


def cache_broken(error: OSError) -> DatasetUnavailable:
    return DatasetUnavailable(
        f"The cache of datasets cannot be used ({error.strerror}).",
        "Ask an operator to look at datasets.cache in site.yaml and at its disk.",
    )
