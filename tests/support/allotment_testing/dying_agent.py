"""allotment-agent whose worker kills itself, or its agent, with SIGKILL at a named step (once).

Run as a script: `dying_agent.py STEP worker|agent MARKER -- <options of allotment-agent>`.
It starts itself as the worker program: `dying_agent.py STEP worker|agent MARKER --worker <options>`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from allotment_spawner.gpu.agent import main as agent
from allotment_spawner.gpu.agent import worker

__all__ = ["killer"]


def killer(step: str, victim: str, marker: Path) -> Callable[[str], None]:
    """A crash point that strikes once: the marker file remembers it across restarts."""

    def on_step(reached: str) -> None:
        if reached != step or marker.exists():
            return
        marker.touch()
        if victim == "agent":
            os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    return on_step


def main(argv: list[str]) -> None:
    step, victim, marker, mode, *rest = argv
    if mode == "--worker":
        worker.main(rest, killer(step, victim, Path(marker)))
    else:
        agent.main(rest, [sys.executable, __file__, step, victim, marker, "--worker"])


if __name__ == "__main__":
    main(sys.argv[1:])
