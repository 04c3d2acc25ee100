"""The registry of datasets in memory: what there is, what is on its way, and who holds it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from allotment_spawner.core.errors import Refusal, UnknownDataset
from allotment_spawner.wire import Work

from allotment_hub.broker.services.book import Book
from allotment_hub.broker.store.datasets import FAILED, READY, Dataset
from allotment_hub.broker.store.records import Lease
from allotment_hub.data.cache import Cache, key_of
from allotment_hub.data.shelf import Kept
from allotment_hub.data.spec import Progress

__all__ = ["DatasetShelf", "no_dataset", "wanted"]


def wanted(lease: Lease) -> tuple[str, ...]:
    """Names of the datasets that a lease was asked with."""
    return tuple((lease.wants or {}).get("datasets", ()))


def no_dataset(name: str) -> UnknownDataset:
    return UnknownDataset(f"There is no dataset called {name} here.", "Choose one of the list: GET datasets.")


class DatasetShelf:
    """Changed on the event loop only, before the database is, so that no decision is made on what is old."""

    def __init__(self, *, cache: Cache, book: Book) -> None:
        self._cache = cache
        self._book = book
        self._rows: dict[str, Dataset] = {}
        self.progress: dict[str, Progress] = {}
        """How far each fetch is that runs now."""
        self.broken: Refusal | None = None
        """Why nothing can be had: the cache cannot be used."""

    def load(self, rows: Iterable[Dataset]) -> None:
        self._rows = {row.name: row for row in rows}

    def all(self) -> list[Dataset]:
        return [self._rows[name] for name in sorted(self._rows)]

    def find(self, name: str) -> Dataset | None:
        return self._rows.get(name)

    def get(self, name: str) -> Dataset:
        """Raises `UnknownDataset`."""
        found = self._rows.get(name)
        if found is None:
            raise no_dataset(name)
        return found

    def put(self, row: Dataset) -> None:
        self._rows[row.name] = row

    def change(self, name: str, **values: Any) -> None:
        if name in self._rows:
            self._rows[name] = replace(self._rows[name], **values)

    def remove(self, name: str) -> None:
        self._rows.pop(name, None)

    def key(self, row: Dataset) -> str:
        return key_of(row.name, row.source, row.checksum, unpack=row.unpack)

    def folder(self, row: Dataset) -> Path:
        return self._cache.data_folder(self.key(row))

    def ready(self, name: str) -> bool:
        found = self._rows.get(name)
        return found is not None and found.state == READY

    def failed(self, name: str) -> Dataset | None:
        found = self._rows.get(name)
        return found if found is not None and found.state == FAILED else None

    def waiting_for(self, name: str) -> list[str]:
        """Ids of queued leases that this dataset is for."""
        return [one for one in self._book.queued_ids() if name in self._wanted_by(one)]

    def _wanted_by(self, lease_id: str) -> tuple[str, ...]:
        lease = self._book.get(lease_id)
        return () if lease is None else wanted(lease)

    def in_use(self, name: str) -> bool:
        """Whether a lease that is not ended was asked with it."""
        return any(name in wanted(lease) for lease in self._book.all())

    def mounted(self) -> frozenset[str]:
        """Keys of cached contents that leases which are not ended have mounted, older ones included."""
        found = set()
        for lease in self._book.all():
            for mount in (lease.launch or {}).get("mounts", ()):
                source = Path(mount["source"])
                if source.parent.parent == self._cache.root / "ready":
                    found.add(source.parent.name)
        return frozenset(found)

    def kept(self) -> list[Kept]:
        """What fills the cache, for the choice of what leaves."""
        return [
            Kept(
                name=row.name,
                bytes=row.cached_bytes or 0,
                used_at=row.used_at or row.cached_at or row.added_at,
                held=row.pinned or self.in_use(row.name),
            )
            for row in self.all()
            if row.state == READY
        ]

    def fetching_bytes(self, *, but: str) -> int:
        """What other fetches have on the disk so far."""
        return sum(one.disk_bytes for name, one in self.progress.items() if name != but)

    def work(self, name: str) -> Work:
        """How far it is, as a sentence."""
        progress, row = self.progress.get(name), self._rows.get(name)
        if progress is None:
            return Work(sentence=f"The dataset {name} is fetched next.")
        total = progress.total_bytes or (row.size_bytes if row is not None else None)
        verb = "Unpacking" if progress.doing == "unpacking" else "Fetching"
        if progress.doing == "unpacking" or not total:
            return Work(sentence=f"{verb} {name}.", got_bytes=progress.got_bytes, total_bytes=total)
        percent = min(100 * progress.got_bytes // total, 100)
        return Work(sentence=f"{verb} {name}: {percent} %", got_bytes=progress.got_bytes, total_bytes=total)
