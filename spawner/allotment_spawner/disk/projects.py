"""Project ids: the number on a folder by which XFS counts what is below it."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from allotment_spawner.disk.walk import walk

__all__ = ["LEAKS", "ProjectIds", "project_of", "put_project"]

_GET, _SET = 0x801C581F, 0x401C5820
"""FS_IOC_FSGETXATTR and FS_IOC_FSSETXATTR of linux/fs.h."""
_ATTRIBUTES = struct.Struct("5I8x")
"""struct fsxattr: xflags, extsize, nextents, projid, cowextsize."""
_INHERIT = 0x200
_FIRST, _SPAN = 0x1000_0000, 0x6000_0000
_ENTRY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def project_of(descriptor: int) -> int:
    """0 is no project. OSError where the file system has none."""
    return _attributes(descriptor)[3]


def put_project(descriptor: int, project: int) -> None:
    """Put the folder and all that is in it into the project; links are left alone, never followed."""
    if project_of(descriptor) == project:
        return  # written last, so a walk that was cut short is done again
    for inner in _below(descriptor):
        _set(inner, project)
    _set(descriptor, project)


def _below(descriptor: int) -> Iterator[int]:
    """A descriptor of each file and folder inside, open while it is looked at."""
    for inside, name, found in walk(descriptor):
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            continue
        try:
            inner = os.open(name, _ENTRY, dir_fd=inside)
        except OSError as error:
            # removed meanwhile, or swapped for a link: not ours to count
            if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR):
                continue
            raise
        try:
            yield inner
        finally:
            os.close(inner)


def _attributes(descriptor: int) -> tuple[int, ...]:
    buffer = bytearray(_ATTRIBUTES.size)
    fcntl.ioctl(descriptor, _GET, buffer)
    return _ATTRIBUTES.unpack(buffer)


def _set(descriptor: int, project: int) -> None:
    flags, extent, extents, _, copied = _attributes(descriptor)
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        flags = flags | _INHERIT if project else flags & ~_INHERIT
    fcntl.ioctl(descriptor, _SET, bytearray(_ATTRIBUTES.pack(flags, extent, extents, project, copied)))


LEAKS = (
    "Whoever owns a file may take it out of its project, where containers share the host's user namespace; "
    "so usage is measured, too."
)
"""The kernel asks for nothing more than the file's owner, without any capability (FS_IOC_FSSETXATTR)."""


class _Content(BaseModel):
    model_config = ConfigDict(extra="ignore")

    ids: dict[str, int] = {}


class ProjectIds:
    """Which folder has which number; a file of its own, since two folders with one number share a limit.

    Numbers are drawn, far from those that operators write into /etc/projid: who owns a file may move it into
    any project, and could fill a neighbour's limit if numbers followed each other.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def of(self, folder: Path) -> int:
        """The folder's number, the same one each time."""
        with self._lock:
            known = self._read()
            number = known.ids.get(str(folder))
            if number is None:
                number = self._drawn(known)
                known.ids[str(folder)] = number
                self._write(known)
            return number

    def known(self, folder: Path) -> int | None:
        """The folder's number; None when it was never given one."""
        with self._lock:
            return self._read().ids.get(str(folder))

    def forget(self, folder: Path) -> None:
        """Its number is drawn for another folder as good as never."""
        with self._lock:
            known = self._read()
            if known.ids.pop(str(folder), None) is not None:
                self._write(known)

    def _read(self) -> _Content:
        try:
            return _Content.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return _Content()

    @staticmethod
    def _drawn(known: _Content) -> int:
        taken = set(known.ids.values())
        while (number := _FIRST + secrets.randbelow(_SPAN)) in taken:
            continue
        return number

    def _write(self, known: _Content) -> None:
        scratch = self._path.with_suffix(".new")
        with scratch.open("w", encoding="utf-8") as stream:
            stream.write(known.model_dump_json())
            stream.flush()
            os.fsync(stream.fileno())
        scratch.replace(self._path)
