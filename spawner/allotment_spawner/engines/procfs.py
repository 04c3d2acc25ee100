"""Reads of /proc that tell which processes belong to what, safe against a pid's reuse."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Process", "pids", "pids_by_container", "read_process", "send_signal"]

_KERNEL_THREAD = 0x00200000
_LOOKS = 25
_LOOK_AGAIN_S = 0.002
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
        read = _read_whole(folder)
    except OSError:
        return None
    if read is None:
        return None
    fields, environ, cmdline = read
    return Process(
        pid=pid,
        parent=int(fields[1]),
        session=int(fields[3]),
        started=int(fields[19]),
        env=_environment(environ),
        argv=tuple(part.decode(errors="replace") for part in cmdline.split(b"\0")[:-1]),
    )


def _fields(folder: Path) -> list[bytes]:
    """`stat` from the state on: the command's name stands in brackets and may hold spaces and brackets."""
    stat = (folder / "stat").read_bytes()
    return stat[stat.rindex(b")") + 2 :].split()


def _read_whole(folder: Path) -> tuple[list[bytes], bytes, bytes] | None:
    """(`_fields`, environ, cmdline); None for a zombie.

    While a process becomes another program (exec) the kernel shows an empty environ and cmdline: looked
    at again, for one that is taken for gone there would lose its device. `env -i` empties only the first.
    """
    for number in range(_LOOKS):
        fields = _fields(folder)
        if fields[0] in {b"Z", b"X"}:
            return None
        environ = (folder / "environ").read_bytes()
        cmdline = (folder / "cmdline").read_bytes()
        if environ or (cmdline and number) or int(fields[6]) & _KERNEL_THREAD:
            break
        time.sleep(_LOOK_AGAIN_S)
    return fields, environ, cmdline


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
        return int(_fields(proc / str(pid))[19])
    except OSError:
        return None


def _environment(raw: bytes) -> dict[str, str]:
    """The first of two equal names wins, as in getenv."""
    env: dict[str, str] = {}
    for entry in raw.split(b"\0"):
        key, mark, value = entry.partition(b"=")
        if mark:
            env.setdefault(key.decode(errors="replace"), value.decode(errors="replace"))
    return env
