"""Disk space kept back beside the database, given up piece by piece when the disk is full."""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
from pathlib import Path
from typing import Final

from sqlalchemy.exc import DBAPIError

__all__ = ["Ballast", "is_full"]

_log = logging.getLogger(__name__)
_PIECE_BYTES: Final = 2**20
_SPARE: Final = 4
"""Refilled only where this many times as much is free: else it would take what others need."""
_FULL: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN})
_NO_ROOM: Final = 4 * 2**20


class Ballast:
    """`size_bytes` in files of one MiB. Others may take what one piece frees before we do, so each failed
    write gives up one more: that many chances, instead of one."""

    def __init__(self, folder: Path, *, size_bytes: int) -> None:
        self._folder = folder
        self._pieces = [folder / f"ballast.{number}" for number in range(size_bytes // _PIECE_BYTES)]

    def fill(self) -> int:
        """Write what is missing, as far as there is room; how many pieces are there now."""
        there = 0
        for piece in self._pieces:
            if not self._whole(piece) and not self._write(piece):
                break
            there += 1
        return there

    def drop(self) -> bool:
        """Give one piece up; False when there is none left."""
        for piece in reversed(self._pieces):
            try:
                piece.unlink()
            except FileNotFoundError:
                continue
            except OSError as error:
                _log.warning("%s cannot be given up: %s", piece, error)
                continue
            _log.warning("the disk is full: %s was given up so that the database can write", piece.name)
            return True
        return False

    def no_room(self) -> bool:
        """Whether a write may have failed for want of space."""
        found = os.statvfs(self._folder)
        return found.f_bavail * found.f_frsize < _NO_ROOM or (found.f_files > 0 and found.f_favail < 4)

    @staticmethod
    def _whole(piece: Path) -> bool:
        try:
            return piece.stat().st_size == _PIECE_BYTES
        except FileNotFoundError:
            return False

    def _write(self, piece: Path) -> bool:
        """Random bytes, because some file systems store zeros as nothing."""
        found = os.statvfs(self._folder)
        if found.f_bavail * found.f_frsize < _SPARE * _PIECE_BYTES * len(self._pieces):
            return False
        try:
            with piece.open("wb") as stream:
                os.fchmod(stream.fileno(), 0o600)
                stream.write(os.urandom(_PIECE_BYTES))
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            piece.unlink(missing_ok=True)
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            return False
        return True


def is_full(error: DBAPIError) -> bool:
    """Whether SQLite says that it could not write; why is for `Ballast.no_room` to tell."""
    code = getattr(error.orig, "sqlite_errorcode", None)
    return isinstance(code, int) and code & 0xFF in _FULL
