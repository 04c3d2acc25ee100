"""How full a home is: measured as its owner, in a helper container or a process, within a time limit."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from allotment_spawner.launch.helper import Finished
from allotment_spawner.launch.names import safe_name

__all__ = ["MEASURE_SCRIPT", "HomeGauge", "HomeUsage", "LocalHomeGauge", "read_usage"]

MEASURE_SCRIPT: Final = """
timeout "$1" du -s -x -B1 -- "$2" && echo whole || echo "stopped $?"
timeout "$1" du -s -x --inodes -- "$2" && echo whole || echo "stopped $?"
"""
"""Blocks that are really taken, each hard-linked file once, never another file system, never a link."""
_TIMED_OUT: Final = 124
_NUMBER: Final = re.compile(r"^(\d+)\t")


@dataclass(frozen=True, slots=True)
class HomeUsage:
    """`used_bytes` on disk and `files` (folders too); `whole` False: parts could not be read, so at least."""

    used_bytes: int
    files: int
    whole: bool = True


class HomeGauge(Protocol):
    async def measure(self, user: str) -> HomeUsage | None:
        """None is unknown: it took too long, or nothing could be read. Raises `EngineUnavailable` and
        `HomeUnavailable`."""


class LocalHomeGauge:
    """For sessions without containers: all of them and this service are one Unix user."""

    def __init__(self, *, homes: Path, limit_s: float) -> None:
        self._homes = homes
        self._limit_s = limit_s

    async def measure(self, user: str) -> HomeUsage | None:
        home = self._homes / safe_name(user)
        argv = [
            "sh",
            "-c",
            f'test -d "$2" || exit 44\n{MEASURE_SCRIPT}',
            "measure",
            str(self._limit_s),
            str(home),
        ]
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            out, _ = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        if process.returncode == 44:
            return HomeUsage(used_bytes=0, files=0)
        return read_usage(Finished(process.returncode, out.decode(errors="replace"), ""))


def read_usage(done: Finished) -> HomeUsage | None:
    """From the two totals that `MEASURE_SCRIPT` prints, each with whether all was read."""
    if done.code is None:
        return None
    numbers, ends = [], []
    for line in done.out.splitlines():
        if found := _NUMBER.match(line):
            numbers.append(int(found[1]))
        elif line == "whole" or line.startswith("stopped "):
            ends.append(line)
    if len(numbers) != 2 or f"stopped {_TIMED_OUT}" in ends:
        return None
    return HomeUsage(used_bytes=numbers[0], files=numbers[1], whole=ends == ["whole", "whole"])
