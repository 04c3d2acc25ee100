"""Reads of /proc that tell which processes belong to what, safe against a pid's reuse."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Process", "pids", "pids_by_container", "read_process", "send_signal"]

_CONTAINER_ID = re.compile(rb"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Process:
    """One living process. (pid, started) names it for good: `started` is in clock ticks since boot."""

    pid: int
    parent: int
    session: int
    started: int
    env: dict[str, str]
    argv: tuple[str, ...]


def pids(proc: Path) -> Iterator[int]:
    """All pids now; OSError when /proc itself cannot be read."""
    with os.scandir(proc) as entries:
        for entry in entries:
            if entry.name.isdigit():
                yield int(entry.name)


def read_process(proc: Path, pid: int, *, uid: int) -> Process | None:
    """The process, or None when it is gone, a zombie, of another user, or closed to us."""
    folder = proc / str(pid)
    try:
        if folder.stat().st_uid != uid:
            return None
        stat = (folder / "stat").read_bytes()
        environ = (folder / "environ").read_bytes()
        cmdline = (folder / "cmdline").read_bytes()
    except OSError:
        return None
    # the command's name stands in brackets and may hold spaces and brackets itself
    fields = stat[stat.rindex(b")") + 2 :].split()
    if fields[0] in {b"Z", b"X"}:
        return None
    return Process(
        pid=pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        started=int(fields[19]),
        env=_environment(environ),
        argv=tuple(part.decode(errors="replace") for part in cmdline.split(b"\0")[:-1]),
    )


def pids_by_container(proc: Path) -> dict[str, list[int]]:
    """Pids on this host by the container id in their cgroup path (any cgroup driver and version).

    Empty for a remote or rootless engine: what cannot be seen is left out, not guessed.
    """
    found: dict[str, list[int]] = {}
    for pid in pids(proc):
        try:
            cgroup = (proc / str(pid) / "cgroup").read_bytes()
        except OSError:
            continue
        # the last id is the innermost: a container engine may itself run in a container
        matches = _CONTAINER_ID.findall(cgroup)
        if matches:
            found.setdefault(matches[-1].decode(), []).append(pid)
    return found


def send_signal(proc: Path, process: Process, number: signal.Signals) -> None:
    """Signal exactly this process; gone or replaced by another with its pid is no error."""
    try:
        handle = os.pidfd_open(process.pid)
    except (ProcessLookupError, OSError):
        return
    try:
        # The handle holds whoever has the pid NOW. Only if that one started when ours did is it ours.
        if _started(proc, process.pid) == process.started:
            signal.pidfd_send_signal(handle, number)
    except (ProcessLookupError, PermissionError):
        return
    finally:
        os.close(handle)


def _started(proc: Path, pid: int) -> int | None:
    try:
        stat = (proc / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    return int(stat[stat.rindex(b")") + 2 :].split()[19])


def _environment(raw: bytes) -> dict[str, str]:
    """The first of two equal names wins, as in getenv."""
    env: dict[str, str] = {}
    for entry in raw.split(b"\0"):
        key, mark, value = entry.partition(b"=")
        if mark:
            env.setdefault(key.decode(errors="replace"), value.decode(errors="replace"))
    return env
