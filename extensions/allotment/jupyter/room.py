"""How much room a home has, measured from inside the session, out of the server's way."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

__all__ = ["Room"]

_AGAIN_S = 900.0
_LIMIT_S = 300.0


class Room:
    """`look` answers at once with what is known; counting a big home goes on behind it."""

    def __init__(self, *, home: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._home = home
        self._monotonic = monotonic
        self._used: int | None = None
        self._counted_at: float | None = None
        self._counting: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._closed = False

    def look(self) -> dict[str, int | None]:
        """{used_bytes, free_bytes}; None is unknown. `free_bytes` is the file system's, for this account."""
        now = self._monotonic()
        due = self._counted_at is None or now - self._counted_at > _AGAIN_S
        if due and (self._counting is None or self._counting.done()):
            self._counting = asyncio.get_running_loop().create_task(self._count())
        return {"used_bytes": self._used, "free_bytes": self._free()}

    async def close(self) -> None:
        """Ends the counting. Never by a cancellation: one that comes while a process is being made is waited
        for without end, and the server could not stop."""
        self._closed = True
        self._kill()
        if self._counting is not None:
            await asyncio.gather(self._counting, return_exceptions=True)

    def _kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()

    def _free(self) -> int | None:
        try:
            found = os.statvfs(self._home)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize

    async def _count(self) -> None:
        """du in a process of its own, at the lowest priority: a million files must not slow a cell down."""
        nice, du = shutil.which("nice"), shutil.which("du")
        self._counted_at = self._monotonic()
        if nice is None or du is None:
            return
        argv = [nice, "-n", "19", du, "-sx", "--block-size=1", "--", str(self._home)]
        process = await asyncio.create_subprocess_exec(
            *argv, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
        self._process = process
        if self._closed:
            self._kill()
        try:
            async with asyncio.timeout(_LIMIT_S):
                out, _ = await process.communicate()
        except TimeoutError:
            # too many files to count in time: unknown, and said so by None
            self._used = None
            return
        finally:
            self._kill()
            self._counted_at = self._monotonic()
        first = out.split(b"\t", 1)[0]
        self._used = int(first) if first.isdigit() else None
