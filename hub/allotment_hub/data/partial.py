"""One file on its way: appended to, resumed after any interruption, hashed as it comes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from allotment_hub.data.budget import Budget
from allotment_hub.data.sources import CHUNK_BYTES, Entry, FileSource, LineBroken, Opened, Transient

__all__ = ["Partial", "Received"]

_SYNC_BYTES = 256 * 2**20
_TRIES = 6
_SLOWEST_S = 30.0
_LEAST_BYTES = 256 * 1024
"""What has to come in the time that `slow_s` names, and between two breaks of the line: a source that sends
a byte a minute would else be waited for, and hold a place among the fetches, for ever."""


@dataclass(frozen=True, slots=True)
class Received:
    size_bytes: int
    sha256: str


class Partial:
    """`path` holds the bytes, `path`.json which version of the source's file they are, and how many of them
    are surely on the disk: after a crash of the machine only these count."""

    def __init__(
        self,
        path: Path,
        *,
        source: FileSource,
        budget: Budget,
        hopeless: Callable[[], bool] = lambda: False,
        alone: bool = True,
        pause_s: float = 1.0,
        slow_s: float = 300.0,
    ) -> None:
        """`hopeless`: whether trying again is of no use; `alone`: this file is the whole dataset."""
        self._slow_s = slow_s
        self._hopeless = hopeless
        self._alone = alone
        self._path = path
        self._note = path.with_name(path.name + ".json")
        self._source = source
        self._budget = budget
        self._pause_s = pause_s

    async def receive(self, entry: Entry, *, fresh: bool = False) -> Received:
        """The whole file. Raises a `Refusal`, `LineBroken` when the line breaks again and again."""
        if fresh:
            self._forget()
        failures = 0
        while True:
            before = self._size()
            try:
                return await self._once(entry)
            except Transient as error:
                failures = 0 if self._size() - before >= _LEAST_BYTES else failures + 1
                if failures >= _TRIES or self._hopeless():
                    raise LineBroken(
                        f"The source did not answer as it should, again and again ({error}).",
                        "Try again later; tell an operator if it stays.",
                    ) from error
                await asyncio.sleep(min(self._pause_s * 2**failures, _SLOWEST_S))

    async def _once(self, entry: Entry) -> Received:
        with self._path.open("r+b" if self._path.exists() else "w+b") as target:
            offset, tag = self._resumable(target)
            async with self._source.open(entry, offset=offset, tag=tag) as opened:
                return await self._take(opened, target)

    def _resumable(self, target: BinaryIO) -> tuple[int, str | None]:
        note = self._read_note()
        if note is None:
            return 0, None
        size = os.fstat(target.fileno()).st_size
        sure = size if note["boot"] == _boot() else min(size, note["synced"])
        return sure, note["tag"]

    async def _take(self, opened: Opened, target: BinaryIO) -> Received:
        """Append what comes, after what stays is hashed and counted."""
        target.truncate(opened.offset)
        self._budget.begin(offset=opened.offset, size_bytes=opened.size_bytes)
        if self._alone:
            self._budget.total_bytes = opened.size_bytes
        target.seek(0)
        whole = await asyncio.to_thread(_hash_of, target, opened.offset)
        self._write_note(opened, synced=opened.offset)
        unsynced, size = 0, opened.offset
        async for chunk in _brisk(opened.chunks, self._slow_s):
            self._budget.write(len(chunk))
            target.write(chunk)
            whole.update(chunk)
            size += len(chunk)
            unsynced += len(chunk)
            self._budget.fetched(len(chunk))
            if unsynced >= _SYNC_BYTES:
                unsynced = 0
                _sync(target)
                self._write_note(opened, synced=size)
        _sync(target)
        if opened.size_bytes is not None and size != opened.size_bytes:
            raise Transient("the line broke before the end")
        return Received(size, whole.hexdigest())

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def _forget(self) -> None:
        self._note.unlink(missing_ok=True)
        self._path.unlink(missing_ok=True)

    def _read_note(self) -> dict[str, Any] | None:
        """None when there is none, or a crash left half of one."""
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
            return {"tag": str(note["tag"]), "boot": str(note["boot"]), "synced": int(note["synced"])}
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _write_note(self, opened: Opened, *, synced: int) -> None:
        """Without a tag nothing could tell that the rest belongs to the same file: then it begins anew."""
        if opened.tag is None:
            self._note.unlink(missing_ok=True)
            return
        half = self._note.with_name(self._note.name + ".half")
        half.write_text(json.dumps({"tag": opened.tag, "boot": _boot(), "synced": synced}), encoding="utf-8")
        half.replace(self._note)


async def _brisk(chunks: AsyncIterator[bytes], slow_s: float) -> AsyncIterator[bytes]:
    """The chunks; `Transient` when less than the least comes in `slow_s`."""
    now = asyncio.get_running_loop().time
    came, ends = 0, now() + slow_s
    while True:
        try:
            async with asyncio.timeout_at(ends):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        except TimeoutError as error:
            raise Transient("it comes too slowly") from error
        came += len(chunk)
        if came >= _LEAST_BYTES:
            came, ends = 0, now() + slow_s
        yield chunk


def _hash_of(target: BinaryIO, count: int) -> Any:
    whole = hashlib.sha256()
    while count > 0 and (chunk := target.read(min(CHUNK_BYTES, count))):
        whole.update(chunk)
        count -= len(chunk)
    return whole


def _sync(target: BinaryIO) -> None:
    target.flush()
    os.fsync(target.fileno())


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
