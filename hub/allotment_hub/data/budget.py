"""What one fetch may put on the disk: bytes, files, free space; and saying how far it is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Literal

from allotment_spawner.core.errors import DatasetUnavailable, DiskFull

from allotment_hub.data.spec import FetchSpec, Progress

__all__ = ["Budget"]

_LOOK_BYTES = 64 * 2**20
_SAY_S = 0.25


class Budget:
    """Counts what is written; raises the refusal that fits before a limit is passed."""

    def __init__(
        self,
        spec: FetchSpec,
        *,
        say: Callable[[Progress], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spec = spec
        self._say = say
        self._monotonic = monotonic
        self._unchecked = _LOOK_BYTES
        self._said_at = float("-inf")
        self._done_bytes = 0
        self.doing: Literal["fetching", "unpacking"] = "fetching"
        self.disk_bytes = 0
        self.files = 0
        self.got_bytes = 0
        self.total_bytes: int | None = None

    def begin(self, *, offset: int, size_bytes: int | None) -> None:
        """A file is (again) received from `offset` on. One that is known not to fit is refused now."""
        self.disk_bytes = self._done_bytes
        self.write(max(size_bytes or 0, offset))
        self.disk_bytes = self.got_bytes = self._done_bytes + offset

    def finished(self, size_bytes: int) -> None:
        """A file of a folder is complete."""
        self._done_bytes += size_bytes
        self.disk_bytes = self.got_bytes = self._done_bytes

    def write(self, count: int) -> None:
        """Before `count` more bytes are written."""
        self.disk_bytes += count
        if self.disk_bytes > self._spec.limit_bytes:
            raise DiskFull(
                "The data is larger than the space that the cache has for it.",
                "Ask an operator to raise datasets.limit_gib, or to unpin or evict other datasets.",
            )
        self._unchecked += count
        if self._unchecked >= _LOOK_BYTES:
            self._unchecked = 0
            self._check_free()

    def _check_free(self) -> None:
        found = os.statvfs(self._spec.folder)
        if found.f_bavail * found.f_frsize < self._spec.floor_bytes:
            raise no_space()

    def add_file(self) -> None:
        self.files += 1
        if self.files > self._spec.limit_files:
            raise DatasetUnavailable(
                f"The data has more than {self._spec.limit_files:,} files and folders.",
                "Pack it into fewer, larger files (Parquet, WebDataset, HDF5).",
            )

    def fetched(self, count: int) -> None:
        self.got_bytes += count
        self.tell()

    def tell(self, *, now: bool = False) -> None:
        """Say how far it is, at most four times a second."""
        at = self._monotonic()
        if now or at - self._said_at >= _SAY_S:
            self._said_at = at
            self._say(
                Progress(
                    got_bytes=self.got_bytes,
                    total_bytes=self.total_bytes,
                    disk_bytes=self.disk_bytes,
                    doing=self.doing,
                )
            )


def no_space() -> DiskFull:
    return DiskFull(
        "The disk has too little free space left for this data.",
        "Ask an operator to make room: evict datasets, remove old images, or enlarge the disk.",
    )
