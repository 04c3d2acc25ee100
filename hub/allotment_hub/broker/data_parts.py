"""The parts of a broker that bring data into sessions, wired to each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial

from allotment_spawner.core.lease import LeaseState

from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.dataset_fetching import DatasetFetching
from allotment_hub.broker.services.dataset_part import DatasetPart
from allotment_hub.broker.services.dataset_shelf import DatasetShelf, wanted
from allotment_hub.broker.services.datasets import Datasets
from allotment_hub.broker.services.groups import groups_of
from allotment_hub.broker.services.jobs import Jobs
from allotment_hub.broker.services.mounts import Mounts
from allotment_hub.broker.services.ports import HubView
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.store import Store
from allotment_hub.data.cache import Cache
from allotment_hub.data.folders import MountFolders, own_folders
from allotment_hub.data.runner import run_fetch
from allotment_hub.paths import Paths
from allotment_hub.site import Site

__all__ = ["DataParts"]

_GIB = 2**30


@dataclass
class DataParts:
    """`in_containers`: whether this engine can mount anything. `changed(waiting, over)` is told which queued
    leases a dataset's news is for, and whether more than its progress changed."""

    site: Site
    paths: Paths
    installation: str
    in_containers: bool
    store: Store
    book: Book
    jobs: Jobs
    hub: HubView
    changed: Callable[[Sequence[str], bool], None]
    clock: Callable[[], datetime]
    on_step: Callable[[str], None]

    @cached_property
    def _cache(self) -> Cache:
        return Cache(self.paths.cache(self.site.datasets.cache, self.installation))

    @cached_property
    def _shelf(self) -> DatasetShelf:
        return DatasetShelf(cache=self._cache, book=self.book)

    @cached_property
    def mounts(self) -> Mounts:
        return Mounts(
            mounts=self.site.mounts,
            in_containers=self.in_containers,
            folders=MountFolders(site=self.site, own=own_folders(self.site, self.paths)),
            groups_of=partial(groups_of, self.hub),
        )

    @cached_property
    def dataset_part(self) -> DatasetPart:
        return DatasetPart(
            in_containers=self.in_containers,
            shelf=self._shelf,
            fetching=self._fetching,
            groups_of=partial(groups_of, self.hub),
        )

    @cached_property
    def datasets(self) -> Datasets:
        return Datasets(
            settings=self.site.datasets,
            in_containers=self.in_containers,
            cache=self._cache,
            shelf=self._shelf,
            fetching=self._fetching,
            store=self.store,
            groups_of=partial(groups_of, self.hub),
            clock=self.clock,
        )

    @cached_property
    def _fetching(self) -> DatasetFetching:
        return DatasetFetching(
            settings=self.site.datasets,
            floor_bytes=int(self.site.disk.floor_gib * _GIB),
            secret=self.paths.secrets / "s3.json",
            cache=self._cache,
            shelf=self._shelf,
            store=self.store,
            jobs=self.jobs,
            fetch=run_fetch,
            changed=self._tell,
            clock=self.clock,
            on_step=self.on_step,
        )

    def _tell(self, name: str) -> None:
        self.changed(self._shelf.waiting_for(name), name not in self._shelf.progress)

    def listen(self, changed: Sequence[Lease]) -> None:
        """After a commit: what an ended lease had mounted may not be needed any more."""
        if any(lease.state is LeaseState.ENDED and wanted(lease) for lease in changed):
            self.jobs.start("datasets-ended", self.datasets.ended)
