"""Simulated processes: real ones count while they exist, made-up ones until they are unloaded."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from allotment_spawner.gpu.simulator.state import SimProcess

__all__ = ["FIRST_MADE_UP_PID", "alive", "start_tick"]

FIRST_MADE_UP_PID = (1 << 22) + 1
"""Linux never gives a pid above 2**22, so made-up pids cannot be mistaken for real ones."""


def start_tick(pid: int) -> int | None:
    """When the real process started (clock ticks since boot), or None when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command name is in parentheses and may hold anything; the fields go on after the last one.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])


def alive(processes: Iterable[SimProcess]) -> list[SimProcess]:
    """The processes that are still on their device; a reused pid does not count."""
    return [p for p in processes if p.started is None or start_tick(p.pid) == p.started]
