"""Unpacks tar and zip files that nobody trusts: only plain files and folders, bounded in every way."""

from __future__ import annotations

import errno
import hashlib
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from lzma import LZMAError
from pathlib import Path
from typing import Protocol, Self

from allotment_spawner.core.errors import DatasetUnavailable

from allotment_hub.data.budget import Budget
from allotment_hub.data.sources import CHUNK_BYTES
from allotment_hub.data.spec import LIMIT_FILES, Manifest
from allotment_hub.data.tree import Digests, Tree, checked

__all__ = ["unpack"]

_RATIO = 200
_RATIO_FREE_BYTES = 2**30
_DIRECTORY_BYTES = 256 * 2**20
_TAIL_BYTES = 65_557


class _Reader(Protocol):
    def read(self, count: int, /) -> bytes: ...


def unpack(archive: Path, folder: Path, *, budget: Budget) -> Manifest:
    """Unpack into `folder`, which is empty; the manifest's checksum is the folder's.

    Raises `DatasetUnavailable` for what is no archive, for links, devices, names that lead out, and for
    what unpacks to far more than it is; `DiskFull` at the limits.
    """
    into = _Unpacking(Tree(folder, budget=budget), budget, packed_bytes=archive.stat().st_size)
    with _broken():
        # tar first: one whose last member is a zip would pass for a zip
        if _tar(archive, into):
            return into.digests.manifest()
        if not zipfile.is_zipfile(archive):
            raise DatasetUnavailable(
                "It is neither a tar nor a zip file, so it cannot be unpacked.",
                "Ask an operator to add it without --unpack, or as .tar, .tar.gz, .tar.bz2, .tar.xz or .zip.",
            )
        _zip(archive, into)
    return into.digests.manifest()


_DAMAGED = (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError)  # type: ignore[attr-defined]


class _Strict(tarfile.TarInfo):
    """Python takes a damaged header, other than the first, for the end, and all after it would be missing."""

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(tarfile_)
        except _DAMAGED as error:
            raise tarfile.ReadError(str(error)) from error


class _Unpacking:
    """Where members go, and what they sum up to."""

    def __init__(self, tree: Tree, budget: Budget, *, packed_bytes: int) -> None:
        self.tree = tree
        self.digests = Digests()
        self._budget = budget
        self._most = packed_bytes * _RATIO + _RATIO_FREE_BYTES
        self._written = 0

    def file(self, name: str, reader: _Reader, *, executable: bool) -> None:
        """Count what really comes out: what a header says is worth nothing."""
        name = checked(name)
        size, whole = 0, hashlib.sha256()
        with self.tree.add_file(name, executable=executable) as target:
            while chunk := reader.read(CHUNK_BYTES):
                self._written += len(chunk)
                if self._written > self._most:
                    raise DatasetUnavailable(
                        f"The archive unpacks to more than {_RATIO} times its size, as a zip bomb does.",
                        "Ask an operator to add it unpacked, or packed in another way.",
                    )
                self._budget.write(len(chunk))
                target.write(chunk)
                whole.update(chunk)
                size += len(chunk)
        self.digests.add(name, size, whole.hexdigest())
        self._budget.tell()

    def folder(self, name: str) -> None:
        if name.strip("./"):
            self.tree.add_folder(checked(name))


def _tar(archive: Path, into: _Unpacking) -> bool:
    """Whether it is one. Read as a stream: members are forgotten one by one, a million fit in memory."""
    with archive.open("rb") as raw:
        try:
            tar = tarfile.open(fileobj=raw, mode="r|*", errorlevel=2, tarinfo=_Strict)  # noqa: SIM115 - closed below
        except tarfile.ReadError:
            return False
        with tar:
            for member in tar:
                tar.members = []  # type: ignore[attr-defined]
                if member.isdir():
                    into.folder(member.name)
                elif member.isreg():
                    reader = tar.extractfile(member)
                    assert reader is not None, "a regular file has bytes"
                    into.file(member.name, reader, executable=bool(member.mode & stat.S_IXUSR))
                else:
                    raise _link(member.name)
    return True


def _zip(archive: Path, into: _Unpacking) -> None:
    _check_directory(archive)
    with zipfile.ZipFile(archive) as packed:
        for member in packed.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _link(member.filename)
            if member.is_dir():
                into.folder(member.filename)
                continue
            if member.flag_bits & 1:
                raise DatasetUnavailable("The archive is locked with a password.", "Pack it without one.")
            with packed.open(member) as reader:
                executable = bool(member.external_attr >> 16 & stat.S_IXUSR)
                into.file(member.filename, reader, executable=executable)


def _check_directory(archive: Path) -> None:
    """Before the list of members is read into memory: how long it says it is."""
    with archive.open("rb") as raw:
        size = raw.seek(0, 2)
        raw.seek(max(0, size - _TAIL_BYTES))
        tail = raw.read()
        at = tail.rfind(b"PK\x05\x06")
        length = struct.unpack_from("<L", tail, at + 12)[0] if 0 <= at <= len(tail) - 22 else 0
        if at >= 20 and tail[at - 20 : at - 16] == b"PK\x06\x07":
            raw.seek(min(struct.unpack_from("<Q", tail, at - 12)[0], size))
            longer = raw.read(56)
            length = struct.unpack_from("<Q", longer, 40)[0] if len(longer) == 56 else length
    if length > _DIRECTORY_BYTES:
        raise DatasetUnavailable(
            f"The archive lists more than {LIMIT_FILES:,} files.", "Pack it into fewer, larger ones."
        )


def _link(name: str) -> DatasetUnavailable:
    return DatasetUnavailable(
        f"The archive holds {name[:80]!a}, which is a link or device and could lead out of its folder.",
        "Pack it again with files in place of links (tar --dereference --hard-dereference).",
    )


def _damaged(error: Exception) -> DatasetUnavailable:
    return DatasetUnavailable(
        f"The archive is damaged or of an unknown kind ({type(error).__name__}).",
        "Ask an operator to pack it again.",
    )


@contextmanager
def _broken() -> Iterator[None]:
    try:
        yield
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        zlib.error,
        LZMAError,
        EOFError,
        NotImplementedError,
        # what Python's readers let through when numbers and names are none
        ValueError,
        LookupError,
        ArithmeticError,
        struct.error,
    ) as error:
        raise _damaged(error) from error
    except OSError as error:
        if error.errno not in (None, errno.EINVAL):  # bz2 and a seek before the start; the disk's have others
            raise
        raise _damaged(error) from error
    except MemoryError as error:
        raise DatasetUnavailable(
            "The archive needs far more memory to be read than archives do.", "Pack it in another way."
        ) from error
