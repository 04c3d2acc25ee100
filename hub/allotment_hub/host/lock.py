"""One process at a time: a lock on a file that ends with its holder, however that ends."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from allotment_hub.host.files import belong

__all__ = ["Lock", "holder"]


class Lock:
    """Held from `take` to `release` or the end of the process; children do not inherit it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self, *, patience_s: float = 1.0) -> bool:
        """Whether it is ours now; the holder's pid stands in the file.

        Tried for a moment: `holder` takes the lock, too, for the blink of an eye.
        """
        limit = time.monotonic() + patience_s
        while not self._try():
            if time.monotonic() > limit:
                return False
            time.sleep(0.02)
        return True

    def _try(self) -> bool:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        belong(descriptor, self._path.parent)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def holder(path: Path) -> int | None:
    """The pid of the process that holds the lock; None when nobody does (0 when it has no name yet)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
        return int(text) if text.isdigit() else 0
    else:
        return None
    finally:
        os.close(descriptor)
