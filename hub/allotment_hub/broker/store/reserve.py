"""Room inside SQLite's own files, so that the database writes on a full disk without needing any of it."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from pathlib import Path
from typing import Final

from allotment_spawner.disk.mounts import mount_of
from sqlalchemy import Engine

__all__ = ["overwrite_in_place", "reserve"]

_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
"""FS_IOC_GETFLAGS and FS_IOC_SETFLAGS of linux/fs.h."""
_NO_COW: Final = 0x00800000
_PAGES: Final = 200
"""Of the journal, after which SQLite copies them into the file and begins again at the front."""
_MORE: Final = 20
"""What one transaction may write past that."""
_PAGE: Final = 4096


def overwrite_in_place(folder: Path) -> None:
    """On btrfs, have new files in this folder overwritten in place instead of copied.

    There a write to a page that exists needs room, too; SQLite maps its index of the journal into memory,
    and a process that writes to a mapped page without room is killed (SIGBUS).
    """
    mount = mount_of(folder)
    if mount is None or mount.kind != "btrfs":
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        flags = bytearray(8)
        fcntl.ioctl(descriptor, _GET_FLAGS, flags)
        (value,) = struct.unpack("l", flags)
        if not value & _NO_COW:
            fcntl.ioctl(descriptor, _SET_FLAGS, bytearray(struct.pack("l", value | _NO_COW)))
    except OSError as error:
        if error.errno not in (errno.ENOTTY, errno.EOPNOTSUPP, errno.EPERM, errno.EINVAL, errno.ENOSPC):
            raise
    finally:
        os.close(descriptor)


def reserve(engine: Engine, journal: Path) -> None:
    """Make the journal as long as it ever gets, and as many free pages in the file; SQLite keeps both.

    Two commits, because pages that are made and freed in one are never written. Killed in between, the
    table stays until the next start. DBAPIError when the disk has no room for it.
    """
    with engine.connect() as connection:
        connection.exec_driver_sql(f"PRAGMA wal_autocheckpoint={_PAGES}")
        free = connection.exec_driver_sql("PRAGMA freelist_count").scalar() or 0
        leftover = connection.exec_driver_sql("PRAGMA table_info(room_kept_back)").first()
    if free >= _PAGES and leftover is None and _size(journal) >= _PAGES * _PAGE:
        return
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE IF EXISTS room_kept_back")
        connection.exec_driver_sql("CREATE TABLE room_kept_back (filler BLOB)")
        connection.exec_driver_sql(
            "INSERT INTO room_kept_back VALUES (randomblob(?))", ((_PAGES + _MORE) * _PAGE,)
        )
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE room_kept_back")


def _size(journal: Path) -> int:
    try:
        return journal.stat().st_size
    except FileNotFoundError:
        return 0
