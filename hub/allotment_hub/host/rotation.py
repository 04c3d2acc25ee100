"""Log files kept small while the processes that write them hold them open."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

from allotment_hub.host.files import belong

__all__ = ["rotate", "tail"]


def rotate(path: Path, *, limit_bytes: int = 20_000_000, keep: int = 3) -> bool:
    """Copy a file that grew too long to PATH.1 and empty it; whether it did.

    The writers append, so they go on at its new end. What they write between copy and emptying is lost;
    on a full disk all of it is, because there its room is worth more.
    """
    try:
        if path.stat().st_size < limit_bytes:
            return False
    except FileNotFoundError:
        return False
    for number in range(keep, 1, -1):
        older = path.with_name(f"{path.name}.{number - 1}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number}"))
    first = path.with_name(f"{path.name}.1")
    try:
        shutil.copyfile(path, first)
        with first.open("rb") as copy:
            belong(copy.fileno(), first.parent)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        first.unlink(missing_ok=True)
    with path.open("r+b") as stream:
        stream.truncate(0)
    return True


def tail(path: Path, *, lines: int = 5, limit_bytes: int = 8192) -> list[str]:
    """The last lines that are not empty; nothing when there is no such file."""
    try:
        with path.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - limit_bytes))
            text = stream.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    return [line for line in text.splitlines() if line.strip()][-lines:]
