"""Processes that outlive who started them: found again by pid and start time, ended politely, then not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from allotment_hub.host.files import belong, write_private
from allotment_hub.host.unix_account import RunAs

__all__ = ["Process", "end", "forget", "recall", "remember", "start", "started_at"]


@dataclass(frozen=True, slots=True)
class Process:
    """A pid alone may be somebody else's by now; with its start time and the boot it names one process.

    `recipe` stamps what it was started with, so that an adopted one can be told from an outdated one.
    """

    pid: int
    started: int
    boot: str
    recipe: str = ""

    def alive(self) -> bool:
        """Whether this very process still runs (one that has exited and waits to be reaped does not)."""
        return self.boot == boot_id() and started_at(self.pid) == self.started


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def started_at(pid: int) -> int | None:
    """Start time in clock ticks since the boot; None when there is no such running process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    if fields[0] in (b"Z", b"X"):
        return None
    return int(fields[19])


def remember(path: Path, process: Process) -> None:
    write_private(path, json.dumps(asdict(process)) + "\n")


def recall(path: Path) -> Process | None:
    """The process noted there when it still runs, else None."""
    try:
        process = Process(**json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return process if process.alive() else None


def forget(path: Path) -> None:
    path.unlink(missing_ok=True)


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    log: Path,
    recipe: str = "",
    run_as: RunAs | None = None,
) -> tuple[Process, subprocess.Popen[bytes]]:
    """Start in a session of its own (no Ctrl-C of ours reaches it), its output appended to a file.

    A file and not a pipe: when the supervisor dies, the process goes on writing. With `run_as` it is
    that account's process, and what it makes is private.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(log, flags, 0o600)
    try:
        belong(descriptor, log.parent)
        child = subprocess.Popen(
            list(argv),
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
            user=run_as.uid if run_as else None,
            group=run_as.gid if run_as else None,
            extra_groups=run_as.groups if run_as else None,
            umask=0o077 if run_as else -1,
        )
    finally:
        os.close(descriptor)
    started = started_at(child.pid)
    # One that failed at once has no start time any more; it counts as dead from here on.
    return Process(pid=child.pid, started=started or -1, boot=boot_id(), recipe=recipe), child


def end(process: Process, *, grace_s: float, child: subprocess.Popen[bytes] | None = None) -> None:
    """SIGTERM, and SIGKILL to the whole group after the grace. Returns once it is gone."""
    _send(process, signal.SIGTERM)
    if not _gone(process, child, within_s=grace_s):
        _send_group(process, signal.SIGKILL)
        _gone(process, child, within_s=10)


def _send(process: Process, number: signal.Signals) -> None:
    if process.alive():
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            return


def _send_group(process: Process, number: signal.Signals) -> None:
    """The group is the process's own, made by `start`; helpers that it left behind go with it."""
    try:
        if process.alive() and os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, number)
        else:
            _send(process, number)
    except ProcessLookupError:
        return


def _gone(process: Process, child: subprocess.Popen[bytes] | None, *, within_s: float) -> bool:
    limit = time.monotonic() + within_s
    while True:
        if not process.alive():
            if child is not None:
                child.wait()  # it is a zombie at most: reaped, whenever it died
            return True
        if time.monotonic() >= limit:
            return False
        time.sleep(0.05)
