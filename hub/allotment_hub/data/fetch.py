"""`python -m allotment_hub.data.fetch`: brings one dataset into its folder; a process of its own.

It reads one `FetchSpec` from stdin and writes messages to stdout. It may be killed at any moment: what it
has is found again, or begun anew, by the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import os
import resource
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from allotment_spawner.core.errors import DatasetUnavailable, Refusal
from pydantic import BaseModel

from allotment_hub.data.addresses import Source, parse_source, refused_address
from allotment_hub.data.budget import Budget
from allotment_hub.data.guard import Guard, own_addresses
from allotment_hub.data.journal import Journal
from allotment_hub.data.partial import Partial, Received
from allotment_hub.data.sources import Entry, FileSource, LineBroken, Transient
from allotment_hub.data.spec import Done, FetchSpec, Manifest, Refused
from allotment_hub.data.tree import Digests, Tree, disk_errors, parent, sync_folder
from allotment_hub.data.unpack import unpack

__all__ = ["fetch", "main"]

_MEMORY_BYTES = 6 * 2**30
_PR_SET_PDEATHSIG = 1
_SILENCES = 5


def main() -> None:
    """Exit 0 after `done`, 3 after `refused`."""
    spec = FetchSpec.model_validate_json(sys.stdin.buffer.read())
    _bind_to(spec.parent_pid)
    os.umask(0o022)
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    guard = Guard(allow_hosts=spec.allow_hosts, own=own_addresses())
    guard.install()
    try:
        manifest = asyncio.run(fetch(spec, hopeless=lambda: bool(guard.refused)))
    except Refusal as refusal:
        why = refused_address() if guard.refused else refusal
        _say(Refused(code=why.code, sentence=why.sentence, next_step=why.next_step))
        sys.exit(3)
    _say(Done(manifest=manifest))


def _bind_to(parent: int) -> None:
    """End with the broker: its next life starts a new fetch in the same folder."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(3)


def _say(message: BaseModel) -> None:
    sys.stdout.write(message.model_dump_json() + "\n")
    sys.stdout.flush()


async def fetch(spec: FetchSpec, *, hopeless: Callable[[], bool] = lambda: False) -> Manifest:
    """Fill the folder and return what is in it; it may hold what an earlier, killed one left.

    `hopeless`: whether trying again is of no use. Raises a `Refusal`.
    """
    folder = Path(spec.folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with disk_errors(), _alone(folder):
        done = _finished(folder)
        if done is not None:
            return done
        source = parse_source(spec.source, allow_hosts=spec.allow_hosts, allow_paths=spec.allow_paths)
        reader = _reader(spec, source)
        try:
            manifest = await _Fetch(spec, folder, reader, hopeless).run()
        except Transient as error:
            raise LineBroken(
                f"The source does not answer as it should ({error}).",
                "Try again later; tell an operator if it stays.",
            ) from error
        except LineBroken:
            raise
        except Refusal:
            # what is refused once is refused again: it only fills the disk
            _clear(folder)
            raise
        finally:
            await reader.close()
        _finish(folder, manifest)
        return manifest


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Never two in one folder: a fetch whose broker was just killed may live for a moment more."""
    with (folder / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _finished(folder: Path) -> Manifest | None:
    try:
        return Manifest.model_validate_json((folder / "manifest.json").read_bytes())
    except (OSError, ValueError):
        return None


def _finish(folder: Path, manifest: Manifest) -> None:
    """The manifest comes last: whoever finds it finds all the rest on the disk."""
    sync_folder(folder)
    half = folder / "manifest.half"
    half.write_text(manifest.model_dump_json(), encoding="utf-8")
    sync_folder(folder)
    half.replace(folder / "manifest.json")
    sync_folder(folder)


def _clear(folder: Path) -> None:
    for name in ("data", "part", "part.json", "journal"):
        if name == "data":
            shutil.rmtree(folder / name, ignore_errors=True)
        else:
            (folder / name).unlink(missing_ok=True)


def _reader(spec: FetchSpec, source: Source) -> FileSource:
    """The libraries of a kind of source take up to a second to load: only where they are used."""
    if source.kind == "path":
        from allotment_hub.data.path_source import PathSource  # noqa: PLC0415

        assert source.root is not None
        return PathSource(source.location, root=source.root, file_name=source.file_name)
    if source.kind == "s3":
        from allotment_hub.data.s3_source import S3Source  # noqa: PLC0415

        return S3Source(
            source.location,
            file_name=source.file_name,
            endpoint=spec.s3_endpoint,
            secret=spec.s3_secret,
            silence_s=spec.silence_s,
        )
    from allotment_hub.data.http_source import HttpSource  # noqa: PLC0415

    return HttpSource(
        source.location,
        file_name=source.file_name,
        allow_hosts=spec.allow_hosts,
        silence_s=spec.silence_s,
    )


class _Fetch:
    """One run: one file, an archive, or a folder of files."""

    def __init__(
        self, spec: FetchSpec, folder: Path, source: FileSource, hopeless: Callable[[], bool]
    ) -> None:
        self._spec = spec
        self._folder = folder
        self._data = folder / "data"
        self._source = source
        self._budget = Budget(spec, say=_say)
        self._hopeless = hopeless

    async def run(self) -> Manifest:
        found = await self._source.entries()
        if isinstance(found, Entry):
            shutil.rmtree(self._data, ignore_errors=True)
            return await self._one(found)
        if self._spec.unpack:
            raise DatasetUnavailable(
                "The source is a folder; only a single archive can be unpacked.",
                "Ask an operator to add it without --unpack.",
            )
        return await self._many(found)

    def _partial(self, *, alone: bool) -> Partial:
        return Partial(
            self._folder / "part",
            source=self._source,
            budget=self._budget,
            hopeless=self._hopeless,
            alone=alone,
            pause_s=self._spec.retry_pause_s,
            slow_s=_SILENCES * self._spec.silence_s,
        )

    async def _one(self, entry: Entry) -> Manifest:
        part = self._folder / "part"
        got = await self._verified(entry)
        if not self._spec.unpack:
            Tree(self._data, budget=self._budget)
            part.chmod(0o644)
            part.replace(self._data / entry.name)
            return Manifest(checksum=got.sha256, size_bytes=got.size_bytes, files=1)
        self._budget.doing = "unpacking"
        self._budget.tell(now=True)
        inside = await asyncio.to_thread(unpack, part, self._data, budget=self._budget)
        part.unlink()
        return Manifest(checksum=got.sha256, size_bytes=inside.size_bytes, files=inside.files)

    async def _verified(self, entry: Entry) -> Received:
        """A wrong sum after a resumed transfer may be ours: fetched once more from the start."""
        for fresh in (False, True):
            got = await self._partial(alone=True).receive(entry, fresh=fresh)
            if self._spec.checksum in (None, got.sha256):
                return got
        raise _mismatch()

    async def _many(self, entries: AsyncIterator[Entry]) -> Manifest:
        tree, digests = Tree(self._data, budget=self._budget), Digests()
        journal = Journal(self._folder / "journal", data=self._data)
        async for entry in entries:
            tree.add_folder(parent(entry.name))
            self._budget.add_file()
            received = journal.had(entry)
            if received is None:
                received = await self._partial(alone=False).receive(entry, fresh=True)
                part = self._folder / "part"
                part.chmod(0o644)
                part.replace(self._data / entry.name)
                journal.add(entry, received)
            self._budget.finished(received.size_bytes)
            self._budget.tell()
            digests.add(entry.name, received.size_bytes, received.sha256)
        journal.drop_others()
        manifest = digests.manifest()
        if self._spec.checksum not in (None, manifest.checksum):
            raise _mismatch()
        return manifest


def _mismatch() -> DatasetUnavailable:
    return DatasetUnavailable(
        "The data is not what was registered: its SHA-256 differs.",
        "Ask an operator to compare it with the publisher's, and to correct the dataset if it changed.",
    )


if __name__ == "__main__":
    main()
