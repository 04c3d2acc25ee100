"""How bytes come from a source: a listing, and each file from an offset on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from allotment_spawner.core.errors import DatasetUnavailable

__all__ = ["CHUNK_BYTES", "Entry", "FileSource", "LineBroken", "Opened", "Transient", "gone"]

CHUNK_BYTES = 2**20


class LineBroken(DatasetUnavailable):
    """What came so far is worth keeping: the next try goes on from there."""


class Transient(Exception):
    """It may work in a moment: the line broke, or the other side is busy."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file: where the source finds it, its name in the dataset (a checked relative path), and which
    version of it this is, where a listing tells."""

    key: str
    name: str
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """Bytes from `offset` on. It is 0 where the source cannot go on, or its file is another one by now.

    `tag` names this very version of the file; None where the source cannot tell versions apart.
    """

    offset: int
    size_bytes: int | None
    tag: str | None
    chunks: AsyncIterator[bytes]


class FileSource(Protocol):
    """Raises `Transient` for what may pass, a `Refusal` for what will not."""

    async def entries(self) -> AsyncIterator[Entry] | Entry:
        """The one file, or all files of a folder."""

    def open(self, entry: Entry, *, offset: int, tag: str | None) -> AbstractAsyncContextManager[Opened]:
        """Go on at `offset` if the file still is the version `tag`."""

    async def close(self) -> None: ...


def gone(what: str) -> DatasetUnavailable:
    return DatasetUnavailable(
        f"The source does not have it: {what}.", "Ask an operator to correct the dataset's source."
    )
