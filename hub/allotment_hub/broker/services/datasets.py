"""Datasets: the operators' registry, and what people may ask for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

from allotment_spawner.core.errors import InUse
from allotment_spawner.wire import DatasetView

from allotment_hub.broker.services.dataset_fetching import DatasetFetching, cache_broken
from allotment_hub.broker.services.dataset_part import INSIDE, not_here
from allotment_hub.broker.services.dataset_shelf import DatasetShelf
from allotment_hub.broker.services.pools import may_use
from allotment_hub.broker.store import datasets as table
from allotment_hub.broker.store.datasets import ABSENT, FETCHING, READY, Dataset
from allotment_hub.broker.store.store import Store
from allotment_hub.data.addresses import parse_source
from allotment_hub.data.cache import Cache
from allotment_hub.site import DatasetSettings

__all__ = ["Datasets", "DatasetsApi"]

_log = logging.getLogger(__name__)


class DatasetsApi(Protocol):
    """Every method raises the `Refusal` that fits; unknown names `UnknownDataset`."""

    async def views(self, user: str) -> list[DatasetView]:
        """What this person may ask for."""

    def rows(self) -> Sequence[Dataset]:
        """The whole registry, for operators."""

    def view(self, row: Dataset) -> DatasetView: ...

    async def register(self, name: str, *, by: str, **told: Any) -> Dataset:
        """`told`: source, title, description, licence, checksum, size_bytes, unpack, groups, pinned. Add
        it, or replace the one of this name. What is here of the same source stays; what is not
        here may come back with another sum."""

    async def pin(self, name: str, *, pinned: bool) -> Dataset: ...

    async def warm(self, name: str) -> Dataset:
        """Have it fetched now; answers at once."""

    async def evict(self, name: str) -> Dataset: ...

    async def remove(self, name: str) -> None:
        """From registry and cache; one that is not there is no error."""


class Datasets:
    """Implements `DatasetsApi`. `in_containers`: False on an engine that cannot mount them."""

    def __init__(
        self,
        *,
        settings: DatasetSettings,
        in_containers: bool,
        cache: Cache,
        shelf: DatasetShelf,
        fetching: DatasetFetching,
        store: Store,
        groups_of: Callable[[str], Awaitable[frozenset[str]]],
        clock: Callable[[], datetime],
    ) -> None:
        """`groups_of` is asked only about datasets that name groups."""
        self._settings = settings
        self._in_containers = in_containers
        self._cache = cache
        self._shelf = shelf
        self._fetching = fetching
        self._store = store
        self._groups_of = groups_of
        self._clock = clock

    async def load(self) -> None:
        """At the start: the disk and the registry are brought together, fetches that were going on go on."""
        self._shelf.load(await self._store.read(lambda tx: table.read(tx.connection)))
        try:
            await asyncio.to_thread(self._cache.open)
            for row in self._shelf.all():
                await self._settle(row)
            await self._fetching.sweep()
        except OSError as error:
            _log.error("the cache of datasets cannot be used", exc_info=error)
            self._shelf.broken = cache_broken(error)
            return
        for row in self._shelf.all():
            if row.state == FETCHING:
                self._fetching.want(row.name)

    async def _settle(self, row: Dataset) -> None:
        """What is whole on the disk is there, whatever was written last; what is not, is not."""
        if row.state not in (READY, FETCHING):
            return
        manifest = await asyncio.to_thread(self._cache.manifest, self._shelf.key(row))
        if manifest is not None and row.state == FETCHING:
            await self._fetching.arrived(row, manifest)
        elif manifest is None and row.state == READY:
            await self._change("dataset.lost", row.name, state=ABSENT, cached_at=None)

    async def ended(self) -> None:
        """A lease with datasets ended: older contents that nobody has mounted any more can go."""
        if self._shelf.broken is None:
            await self._fetching.sweep()

    # for people
    async def views(self, user: str) -> list[DatasetView]:
        rows = self._shelf.all()
        if any(row.groups is not None for row in rows):
            groups = await self._groups_of(user)
            rows = [row for row in rows if row.groups is None or may_use(row.groups, groups)]
        return [self.view(row) for row in rows]

    def view(self, row: Dataset) -> DatasetView:
        progress = self._shelf.progress.get(row.name)
        why = row.problem["sentence"] if row.problem is not None else None
        if self._shelf.broken is not None:
            why = self._shelf.broken.sentence
        if not self._in_containers:
            why = not_here().sentence
        return DatasetView.model_validate(
            {
                "name": row.name,
                "title": row.title,
                "description": row.description,
                "licence": row.licence,
                "path": f"{INSIDE}/{row.name}",
                "size_bytes": row.cached_bytes if row.cached_bytes is not None else row.size_bytes,
                "got_bytes": None if progress is None else progress.got_bytes,
                "state": row.state,
                "reason": why,
                "pinned": row.pinned,
            }
        )

    # for operators
    def rows(self) -> Sequence[Dataset]:
        return self._shelf.all()

    async def register(self, name: str, *, by: str, **told: Any) -> Dataset:
        row = Dataset(name=name, state=ABSENT, added_by=by, added_at=self._clock(), **told)
        parse_source(
            row.source, allow_hosts=self._settings.allow_hosts, allow_paths=self._settings.allow_paths
        )
        old = self._shelf.find(row.name)
        same = old is not None and self._shelf.key(old) == self._shelf.key(row)
        if old is not None and same and old.state in (READY, FETCHING):
            row = replace(
                row,
                **{name: getattr(old, name) for name in _OF_THE_CACHE},
            )
        elif old is not None and not same:
            await self._fetching.stop(row.name)
        self._shelf.put(row)
        await self._store.write("dataset.register", lambda tx: table.put(tx.connection, row))
        self._fetching.tell(name)
        await self.ended()
        return row

    async def pin(self, name: str, *, pinned: bool) -> Dataset:
        self._shelf.get(name)
        await self._change("dataset.pin", name, pinned=pinned)
        self._fetching.tell(name)
        return self._shelf.get(name)

    async def warm(self, name: str) -> Dataset:
        self._shelf.get(name)
        if self._shelf.broken is not None:
            raise self._shelf.broken
        self._fetching.want(name)
        return self._shelf.get(name)

    async def evict(self, name: str) -> Dataset:
        row = self._shelf.get(name)
        if row.pinned:
            raise InUse(f"The dataset {name} is pinned.", f"Unpin it first: allot data pin {name} --off.")
        self._unused(name)
        await self._fetching.stop(name)
        self._unused(name)  # a start may have come meanwhile
        await self._fetching.drop(name)
        return self._shelf.get(name)

    async def remove(self, name: str) -> None:
        if self._shelf.find(name) is None:
            return
        self._unused(name)
        await self._fetching.stop(name)
        self._unused(name)
        self._shelf.remove(name)
        await self._store.write("dataset.remove", lambda tx: table.remove(tx.connection, name))
        self._fetching.tell(name)
        await self.ended()

    def _unused(self, name: str) -> None:
        if self._shelf.in_use(name):
            raise InUse(
                f"A session that runs or waits uses the dataset {name}.",
                "Try again when it has ended (allot leases).",
            )

    async def _change(self, step: str, name: str, **values: Any) -> None:
        self._shelf.change(name, **values)
        await self._store.write(step, lambda tx: table.change(tx.connection, name, **values))


_OF_THE_CACHE = ("state", "problem", "content", "cached_bytes", "files", "cached_at", "used_at")
