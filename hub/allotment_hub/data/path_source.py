"""A file or folder of this machine below an allowed folder; no link is ever followed."""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from allotment_spawner.core.errors import AddressNotAllowed, DatasetUnavailable

from allotment_hub.data.sources import CHUNK_BYTES, Entry, Opened, gone
from allotment_hub.data.tree import checked

__all__ = ["PathSource"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


class PathSource:
    """Walks from `root` down by open folders, so that a name that is swapped meanwhile leads nowhere."""

    def __init__(self, path: str, *, root: str, file_name: str) -> None:
        self._root = root
        self._inside = path.removeprefix(root).strip("/")
        self._name = file_name

    async def entries(self) -> AsyncIterator[Entry] | Entry:
        parent, last = posixpath.split(self._inside)
        if last:
            folder = self._open_folder(parent)
            try:
                found = os.stat(last, dir_fd=folder, follow_symlinks=False)
            except OSError as error:
                raise gone(error.strerror or "it cannot be read") from error
            finally:
                os.close(folder)
            if stat.S_ISLNK(found.st_mode):
                raise _link(last)
            if not stat.S_ISDIR(found.st_mode):
                return Entry(key=self._inside, name=self._name)
        return self._all()

    async def _all(self) -> AsyncIterator[Entry]:
        top = self._open_folder(self._inside)
        try:
            for entry in self._walk(top):
                yield entry
        finally:
            os.close(top)

    def _walk(self, top: int) -> Iterator[Entry]:
        for where, folders, files, here in os.fwalk(".", dir_fd=top, follow_symlinks=False):
            folders.sort()
            for folder in folders:
                if stat.S_ISLNK(os.stat(folder, dir_fd=here, follow_symlinks=False).st_mode):
                    raise _link(folder)
            for file in sorted(files):
                name = checked(posixpath.normpath(posixpath.join(where, file)))
                key = posixpath.join(self._inside, name) if self._inside else name
                yield Entry(key=key, name=name)

    @asynccontextmanager
    async def open(self, entry: Entry, *, offset: int, tag: str | None) -> AsyncIterator[Opened]:
        parent, last = posixpath.split(entry.key)
        folder = self._open_folder(parent)
        try:
            opened = os.open(last, _FILE, dir_fd=folder)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise _link(last) from error
            raise gone(error.strerror or "it cannot be read") from error
        finally:
            os.close(folder)
        try:
            found = os.fstat(opened)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
                raise _link(last)
            version = f"{found.st_ino}-{found.st_size}-{found.st_mtime_ns}"
            start = offset if version == tag else 0
            os.lseek(opened, start, os.SEEK_SET)
            yield Opened(start, found.st_size, version, _chunks(opened))
        finally:
            os.close(opened)

    def _open_folder(self, inside: str) -> int:
        """An open folder below the root; every step refuses links."""
        try:
            here = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise gone(error.strerror or "it cannot be read") from error
        for part in [part for part in inside.split("/") if part]:
            above = here
            try:
                here = os.open(part, _FOLDER, dir_fd=above)
            except OSError as error:
                raise _no_way(part, above, error) from error
            finally:
                os.close(above)
        return here

    async def close(self) -> None:
        return None


def _no_way(part: str, above: int, error: OSError) -> Exception:
    try:
        linked = stat.S_ISLNK(os.stat(part, dir_fd=above, follow_symlinks=False).st_mode)
    except OSError:
        linked = False
    return _through(part) if linked else gone(error.strerror or "it cannot be read")


def _through(part: str) -> AddressNotAllowed:
    return AddressNotAllowed(
        f"The path goes through a link ({part[:80]!a}), which could lead anywhere.",
        "Name the real path, below one of datasets.allow_paths.",
    )


def _link(name: str) -> DatasetUnavailable:
    return DatasetUnavailable(
        f"{name[:80]!a} is a link, a second name of a file, or no plain file; "
        "such names could lead out of the folder.",
        "Put copies in their place (cp -rL), or name a folder without them.",
    )


async def _chunks(opened: int) -> AsyncIterator[bytes]:
    while chunk := os.read(opened, CHUNK_BYTES):
        yield chunk
