"""A home as one compressed tar file: written from a helper's output, then read back and compared."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

from allotment_spawner.engines.helpers import Helpers
from allotment_spawner.launch.container import HomeMount, Owner
from allotment_spawner.launch.helper import HELPER_HOME, home_at

from allotment_hub.host.errors import HostError
from allotment_hub.host.files import private_folder
from allotment_hub.people.journal import Packed

__all__ = ["pack", "read_back"]

PACK_SCRIPT: Final = """
cd "$1" || exit 90
find . -xdev -type d ! -perm -u=rwx -exec chmod u+rwx {} \\; || exit 91
find . -xdev -type f ! -perm -u=r -exec chmod u+r {} \\; || exit 91
echo "entries $(find . -xdev ! -type s -printf . | wc -c)" >&2
exec tar --create --sparse --one-file-system --numeric-owner --file=- .
"""
"""What is closed even to its owner is opened first; nothing else is changed. Links are kept as links."""
SILENCE_S: Final = 3600.0
_ENTRIES: Final = re.compile(r"^entries (\d+)$", re.MULTILINE)


def pack(
    helpers: Helpers,
    *,
    user: str,
    home: HomeMount,
    owner: Owner,
    target: Path,
    progress: Callable[[int], None],
    on_step: Callable[[str], None],
) -> Packed:
    """Write `target` and return what is in it, after it was read back from the disk. The home stays.

    The file has its name only when all of that went well. `progress` gets the bytes read so far.
    """
    if not target.parent.exists():
        private_folder(target.parent)  # an operator's own folder keeps its mode
    part = target.with_name(f"{target.name}.part")
    try:
        with part.open("wb") as file:
            part.chmod(0o600)
            sha256, entries = _write(helpers, user, home, owner, file, progress)
            file.flush()
            os.fsync(file.fileno())
        on_step("packed")
        found, members = read_back(part)
        if (found, members) != (sha256, entries):
            raise HostError(
                f"The archive of {user} is not what was read ({members} of {entries} entries); the home was "
                "left as it is. Is the disk sound, and does nothing write into that home? Then try again."
            )
        part.replace(target)
        _sync_folder(target.parent)
    except OSError as error:
        raise HostError(
            f"{target} cannot be written ({error.strerror}); the home was left as it is."
        ) from None
    finally:
        part.unlink(missing_ok=True)
    return Packed(path=str(target), sha256=sha256, entries=entries, size_bytes=target.stat().st_size)


def read_back(archive: Path) -> tuple[str, int]:
    """(sha256 of the tar inside, entries) of a compressed archive, read to its end. Raises OSError."""
    with gzip.open(archive, "rb") as unpacked:
        hashing = _Hashing(unpacked)
        entries = 0
        try:
            with tarfile.open(fileobj=hashing, mode="r|") as tar:
                while tar.next() is not None:
                    entries += 1
                    tar.members.clear()  # type: ignore[attr-defined] # a million would fill the memory
        except (tarfile.TarError, EOFError, zlib.error) as error:
            raise OSError(5, f"the archive is damaged: {error}") from error
        while hashing.read(1 << 20):
            continue
        return hashing.sha256.hexdigest(), entries


def _write(
    helpers: Helpers,
    user: str,
    home: HomeMount,
    owner: Owner,
    file: IO[bytes],
    progress: Callable[[int], None],
) -> tuple[str, int]:
    sha256, taken = hashlib.sha256(), 0
    with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=1, filename="", mtime=0) as packed:

        def take(piece: bytes) -> None:
            nonlocal taken
            packed.write(piece)
            sha256.update(piece)
            taken += len(piece)
            progress(taken)

        done = helpers.stream(
            "pack",
            user,
            argv=["sh", "-c", PACK_SCRIPT, "pack", HELPER_HOME],
            owner=owner,
            mounts=[home_at(home, read_only=False)],
            take=take,
            limit_s=SILENCE_S,
        )
    entries = _ENTRIES.search(done.err)
    if done.code != 0 or entries is None:
        raise HostError(
            f"The home of {user} could not be read whole; it was left as it is. "
            f"{_last_lines(done.err)} Files of other accounts in it? See to them as root, then try again."
        )
    return sha256.hexdigest(), int(entries[1])


def _last_lines(text: str) -> str:
    lines = [line for line in text.splitlines() if not line.startswith("entries ")]
    return " | ".join(line[:200] for line in lines[-3:])


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Hashing(io.BufferedIOBase):
    """A stream that hashes what is read from it."""

    def __init__(self, stream: gzip.GzipFile) -> None:
        self._stream = stream
        self.sha256 = hashlib.sha256()

    def read(self, size: int | None = -1, /) -> bytes:
        piece = self._stream.read(-1 if size is None else size)
        self.sha256.update(piece)
        return piece
