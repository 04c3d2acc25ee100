"""Whose the parts of the data directory are when root starts services that another account runs."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from allotment_hub.host.errors import HostError

__all__ = ["give_file", "make_parents", "settle"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def make_parents(path: Path) -> None:
    """The folders above, as those of whoever owns the nearest one that exists."""
    missing = [parent for parent in path.parents if not parent.exists()]
    for parent in reversed(missing):
        owner = parent.parent.stat()
        parent.mkdir(mode=0o755)
        os.chown(parent, owner.st_uid, owner.st_gid, follow_symlinks=False)


def settle(folder: Path, *, uid: int, gid: int, mode: int, follow: bool = False, deep: bool = True) -> None:
    """Make the folder, or give an existing one to this owner. As root only.

    What is in it is given, too, when the folder itself changes hands; it does so last, so that a
    hand-over that was cut short is done again. A symbolic link in its place is refused: whoever could
    put it there must not have root change what it points to.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    try:
        descriptor = os.open(folder, _FOLDER if follow else _FOLDER | os.O_NOFOLLOW)
    except NotADirectoryError:
        raise HostError(f"{folder} must be a folder, not a link; use a bind mount instead.") from None
    try:
        if deep and os.fstat(descriptor).st_uid != uid:
            for _, folders, files, inside in os.fwalk(".", dir_fd=descriptor):
                for name in (*folders, *files):
                    give_file(name, uid=uid, gid=gid, folder=inside)
        os.fchown(descriptor, uid, gid)
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def give_file(path: str | Path, *, uid: int, gid: int, folder: int | None = None) -> None:
    """To this owner; links, sockets and files with a second name are left as they are."""
    try:
        descriptor = os.open(path, _FILE, dir_fd=folder)
    except OSError:
        return
    try:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_nlink == 1):
            os.fchown(descriptor, uid, gid)
    finally:
        os.close(descriptor)
