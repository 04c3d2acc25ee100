"""Runs a file system's own commands: fixed arguments, no shell, a deadline."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence

from allotment_spawner.disk.base import ToolFailed

__all__ = ["Run", "run_tool"]

_LIMIT_S = 20.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

Run = Callable[[Sequence[str]], str]
"""The command's output, or ToolFailed."""


def run_tool(argv: Sequence[str], *, path: str = _PATH, timeout_s: float = _LIMIT_S) -> str:
    """Standard output as text. ToolFailed with what the command said."""
    env = {"PATH": path, "LC_ALL": "C", "HOME": "/"}
    program = next(
        (full for folder in path.split(":") if os.access(full := f"{folder}/{argv[0]}", os.X_OK)), None
    )
    if program is None:
        raise ToolFailed(f"The command {argv[0]} is not installed.")
    try:
        done = subprocess.run(
            [program, *argv[1:]],
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
            env=env,
            cwd="/",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolFailed(f"{argv[0]} did not run to its end: {error}.") from error
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ToolFailed(f"{argv[0]} failed: {said[-1][:300] if said else f'code {done.returncode}'}.")
    return done.stdout.decode("utf-8", "replace")
