"""A folder that is filled with files under checked names: nothing leaves it, nothing is written twice."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from allotment_spawner.core.errors import DatasetUnavailable

from allotment_hub.data.budget import Budget, no_space
from allotment_hub.data.spec import Manifest

__all__ = ["Digests", "Tree", "checked", "disk_errors", "parent", "sync_folder"]

_LONGEST = 1024
_DEEPEST = 64


def checked(name: str) -> str:
    """The relative path of a member, or `DatasetUnavailable` for one that could lead out of the folder."""
    parts = name.rstrip("/").split("/")
    if parts and parts[0] == ".":
        parts = parts[1:]
    encoded = "/".join(parts).encode("utf-8", "surrogatepass")
    if any(part in ("", ".", "..") for part in parts) or len(encoded) > _LONGEST or len(parts) > _DEEPEST:
        raise _bad(name)
    if (
        b"\x00" in encoded
        or b"\\" in encoded
        or any(len(part.encode(errors="replace")) > 255 for part in parts)
    ):
        raise _bad(name)
    return "/".join(parts)


def parent(name: str) -> str:
    """The folder of a checked name, empty for the top."""
    return name.rpartition("/")[0]


def _bad(name: str) -> DatasetUnavailable:
    return DatasetUnavailable(
        f"The data holds a file named {_shown(name)}, which could lead out of its folder.",
        "Pack it again with plain relative names.",
    )


def _shown(name: str) -> str:
    return ascii(name if len(name) <= 80 else name[:77] + "…")


class Tree:
    """Files below `folder`, which this process alone writes and which held nothing before."""

    def __init__(self, folder: Path, *, budget: Budget) -> None:
        self.folder = folder
        self._budget = budget
        self._made: set[str] = {""}
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)

    def add_folder(self, name: str) -> None:
        """With all above it; one that is there is no error."""
        if name in self._made:
            return
        self.add_folder(parent(name))
        self._budget.add_file()
        try:
            (self.folder / name).mkdir(mode=0o755)
        except FileExistsError:
            if not (self.folder / name).is_dir():
                raise _twice(name) from None
        self._made.add(name)

    @contextmanager
    def add_file(self, name: str, *, executable: bool = False) -> Iterator[BinaryIO]:
        """A new file for writing; counted, with its folders. Bytes are the writer's to count."""
        self.add_folder(parent(name))
        self._budget.add_file()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        try:
            opened = os.open(self.folder / name, flags, 0o755 if executable else 0o644)
        except FileExistsError:
            raise _twice(name) from None
        with os.fdopen(opened, "wb") as target:
            yield target


def _twice(name: str) -> DatasetUnavailable:
    return DatasetUnavailable(
        f"The data holds the name {_shown(name)} twice.", "Pack it again with each name once."
    )


class Digests:
    """The digest of a folder: of the sorted list of its files' digests, sizes and names."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self.size_bytes = 0

    def add(self, name: str, size_bytes: int, sha256: str) -> None:
        self._lines.append(f"{name}\x00{size_bytes}\x00{sha256}")
        self.size_bytes += size_bytes

    def manifest(self) -> Manifest:
        whole = hashlib.sha256()
        for line in sorted(self._lines):
            name, size, sha256 = line.split("\x00")
            whole.update(f"{sha256} {size} {name}\n".encode("utf-8", "surrogatepass"))
        return Manifest(checksum=whole.hexdigest(), size_bytes=self.size_bytes, files=len(self._lines))


@contextmanager
def disk_errors() -> Iterator[None]:
    """A full disk is told in words; other errors pass."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise no_space() from error
        raise


def sync_folder(folder: Path) -> None:
    """Have everything below on the disk: one call for the file system, as a million fsyncs take hours."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(opened) != 0:
            raise OSError(ctypes.get_errno(), "syncfs failed", str(folder))
    finally:
        os.close(opened)
