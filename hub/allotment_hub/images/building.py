"""Runs images/build, handing its output on as it comes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

__all__ = ["BuildFailed", "run_build"]

_READY = " is ready"


class BuildFailed(Exception):
    """images/build ended with an error; its own words were handed on."""


def run_build(
    checkout: Path,
    names: Sequence[str],
    options: Sequence[str],
    *,
    env: Mapping[str, str],
    say: Callable[[str], None],
) -> list[str]:
    """The tags that are ready afterwards. Raises `BuildFailed`; ends the build when it is interrupted."""
    argv = [sys.executable, str(checkout / "images" / "build"), *names, *options]
    ready: list[str] = []
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
        bufsize=1,
        env=dict(env),
        cwd=checkout,
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                said = line.rstrip("\n")
                say(said)
                if said.endswith(_READY):
                    ready.append(said.removesuffix(_READY))
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0:
        raise BuildFailed(f"images/build ended with status {process.returncode}")
    return ready
