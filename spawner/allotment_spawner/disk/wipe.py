"""Removes all that is in a folder that others filled: never follows a link, whatever the depth."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

from allotment_spawner.disk.walk import open_folder

__all__ = ["wipe"]

_BATCH = 1000
_DEEPEST = 100
_ELSEWHERE = frozenset({errno.EXDEV, errno.EINVAL})


def wipe(descriptor: int, *, between: Callable[[], None] = lambda: None) -> None:
    """Empty this folder. `between` is called after every thousand names, and may raise to stop early.

    All is done by descriptors, one level each, so a folder that is swapped for a link meanwhile leads
    nowhere. What lies too deep is moved up and removed from there. Raises OSError.
    """
    _Wiper(between).empty(descriptor)


class _Wiper:
    def __init__(self, between: Callable[[], None]) -> None:
        self._between = between
        self._count = 0
        self._open: list[int] = []

    def empty(self, folder: int) -> None:
        """Until a look finds nothing: deeper folders come up as new names."""
        self._open.append(folder)
        try:
            while names := _names(folder):
                for name in names:
                    self._count += 1
                    if self._count % _BATCH == 0:
                        self._between()
                    self._remove(folder, name)
        finally:
            self._open.pop()

    def _remove(self, folder: int, name: str) -> None:
        try:
            os.unlink(name, dir_fd=folder)
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError):
            # Linux says EISDIR, POSIX and some file systems EPERM
            if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                raise
            self._remove_folder(folder, name)

    def _remove_folder(self, folder: int, name: str) -> None:
        try:
            os.rmdir(name, dir_fd=folder)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EACCES):
                raise
        if len(self._open) > _DEEPEST:
            self._move_up(folder, name)
            return
        inner = _enter(folder, name)
        try:
            self.empty(inner)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=folder)

    def _move_up(self, folder: int, name: str) -> None:
        """To the highest open folder of the same file system (a subvolume is one of its own)."""
        fresh = f".deep-{secrets.token_hex(8)}"
        for above in self._open:
            try:
                os.rename(name, fresh, src_dir_fd=folder, dst_dir_fd=above)
                return
            except OSError as error:
                if error.errno not in _ELSEWHERE:
                    raise
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), name)


def _enter(folder: int, name: str) -> int:
    """Open it even where its owner shut it: an agent that is not root is refused by modes."""
    try:
        return open_folder(name, inside=folder)
    except PermissionError:
        handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            # by the handle: chmod of a name would follow a link
            Path(f"/proc/self/fd/{handle}").chmod(0o700)
        finally:
            os.close(handle)
        return open_folder(name, inside=folder)


def _names(folder: int) -> list[str]:
    """One batch: a million names are never in memory together."""
    with os.scandir(folder) as entries:
        return [entry.name for _, entry in zip(range(_BATCH), entries, strict=False)]
