"""Starting and stopping the supervisor from outside."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping

from allotment_hub.host import processes
from allotment_hub.host.errors import HostError
from allotment_hub.host.lock import holder
from allotment_hub.host.specs import SERVICES
from allotment_hub.paths import Paths

__all__ = ["running", "start_supervisor", "stop_services"]

STOP_LIMIT_S = 90.0


def running(paths: Paths) -> bool:
    """Whether a supervisor runs for this data directory."""
    return holder(paths.runtime.parent / "supervisor.lock") is not None


def start_supervisor(paths: Paths, env: Mapping[str, str]) -> None:
    """Start it detached from this terminal; returns once it holds its lock."""
    _, child = processes.start(
        [sys.executable, "-m", "allotment_hub.host.supervisor", "--data-dir", str(paths.data)],
        env=env,
        cwd=paths.data,
        log=paths.logs / "supervisor.log",
    )
    limit = time.monotonic() + 30
    while not running(paths):
        if child.poll() is not None or time.monotonic() > limit:
            raise HostError(f"The supervisor did not start; see {paths.logs / 'supervisor.log'}.")
        time.sleep(0.05)


def stop_services(paths: Paths) -> bool:
    """End supervisor and services, also those that a killed supervisor left; whether there were any."""
    found = _stop_supervisor(paths)
    for name in reversed(SERVICES):
        pid_file = paths.runtime.parent / f"{name}.pid"
        process = processes.recall(pid_file)
        if process is not None:
            processes.end(process, grace_s=10)
            found = True
        processes.forget(pid_file)
    return found


def _stop_supervisor(paths: Paths) -> bool:
    lock = paths.runtime.parent / "supervisor.lock"
    pid = holder(lock)
    if pid is None:
        return False
    limit = time.monotonic() + STOP_LIMIT_S
    while (pid := holder(lock)) is not None:
        if pid:
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                continue  # it ends right now; the lock goes with it
        if time.monotonic() > limit:
            raise HostError(
                f"The supervisor (process {pid}) does not stop; see {paths.logs / 'supervisor.log'}."
            )
        time.sleep(0.1)
    return True
