"""Runs images/build, handing its output on as it comes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

__all__ = ["BuildFailed", "run_build"]

_READY = re.compile(r"(\S+/(?P<name>[^\s/:]+):[^\s/:]+) is ready")


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
                found = _READY.fullmatch(said)
                # only what was asked for: code of the image itself speaks here, too
                if found is not None and found["name"] in names:
                    ready.append(found[1])
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0:
        raise BuildFailed(f"images/build ended with status {process.returncode}")
    return ready
