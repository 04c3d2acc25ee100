"""One writer at a time in a person's overlay, whatever file system the home is on."""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import os
import sys
import threading
import time
import uuid
from collections.abc import Iterator, MutableMapping
from pathlib import Path

__all__ = ["HELD", "LockUnavailable", "hold_until_exit", "locked"]

HELD = "ALLOTMENT_PACKAGES_LOCK"
"""Set for the children of a process that holds the lock: a pip starts pips of its own."""

_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL})
_POLL_S = 0.2
_BEAT_S = 5.0
_STALE_S = 60.0
LIMIT_S = 900.0


class LockUnavailable(Exception):
    """Somebody else held it for longer than anything reasonable takes. The message is for people."""


def hold_until_exit(path: str, environ: MutableMapping[str, str], *, limit_s: float = LIMIT_S) -> bool:
    """Take the lock and keep it until this process ends; False where a parent of ours holds it.

    Raises `LockUnavailable` after `limit_s`, and `OSError` where the folder cannot be written at all.
    """
    if environ.get(HELD) == path:
        return False
    atexit.register(_acquire(path, limit_s))
    environ[HELD] = path
    return True


@contextlib.contextmanager
def locked(path: str, *, limit_s: float = 60.0) -> Iterator[None]:
    """Hold the lock for the length of the block; errors as in `hold_until_exit`."""
    release = _acquire(path, limit_s)
    try:
        yield
    finally:
        release()


class _Waiting:
    """Says once that it waits, and ends the wait at its limit."""

    def __init__(self, limit_s: float) -> None:
        self._end = time.monotonic() + limit_s
        self._said = False

    def again(self) -> None:
        if not self._said:
            self._said = True
            sys.stderr.write("Another of your sessions is changing packages here: waiting for it …\n")
            sys.stderr.flush()
        if time.monotonic() > self._end:
            raise LockUnavailable(
                "Another of your sessions has been changing packages here for too long; nothing was changed. "
                "Stop that session, or try again later."
            )
        time.sleep(_POLL_S)


class _Release:
    """Gives the lock back; kept alive until then."""

    def __init__(self, *, descriptor: int | None = None, beat: _Beat | None = None) -> None:
        self._descriptor = descriptor
        self._beat = beat

    def __call__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if self._beat is not None:
            self._beat.stop()


def _acquire(path: str, limit_s: float) -> _Release:
    Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    waiting = _Waiting(limit_s)
    return _by_kernel(path, waiting) or _by_file(Path(path + ".held"), waiting)


def _by_kernel(path: str, waiting: _Waiting) -> _Release | None:
    """A POSIX lock, which NFS servers share among machines; None where this file system has none."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return _Release(descriptor=descriptor)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                os.close(descriptor)
                return None
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                os.close(descriptor)
                raise
        try:
            waiting.again()
        except LockUnavailable:
            os.close(descriptor)
            raise


def _by_file(path: Path, waiting: _Waiting) -> _Release:
    """A file that only one can link to its name, touched while its holder lives.

    Its age is told by the file server's own clock: machines' clocks differ.
    """
    mine = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    mine.touch(mode=0o600, exist_ok=False)
    try:
        while True:
            # atomic on NFS too, where O_EXCL once was not
            with contextlib.suppress(FileExistsError):
                path.hardlink_to(mine)
            if _same(mine, path):
                # a moment for one who took this for the stale file that lay here before
                time.sleep(2 * _POLL_S)
                if _same(mine, path):
                    return _Release(beat=_Beat(path))
            _break_stale(path, mine)
            waiting.again()
    finally:
        mine.unlink()


def _same(mine: Path, path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return mine.samefile(path)
    return False


def _break_stale(path: Path, mine: Path) -> None:
    """Take away what nobody touches any more; put back what turns out to be somebody's new one."""
    os.utime(mine)
    with contextlib.suppress(FileNotFoundError):
        stale = path.stat()
        if mine.stat().st_mtime - stale.st_mtime <= _STALE_S:
            return
        grave = path.rename(mine.with_name(f"{mine.name}.stale"))
        if not os.path.samestat(stale, grave.stat()):
            with contextlib.suppress(FileExistsError):
                path.hardlink_to(grave)
        grave.unlink()


class _Beat:
    """Touches the lock file from a thread of its own, until stopped or the process ends."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="allotment-packages-lock", daemon=True)
        os.utime(path)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(_BEAT_S):
            with contextlib.suppress(OSError):
                os.utime(self._path)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            self._path.unlink()
