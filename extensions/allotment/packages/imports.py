"""Tries to import packages in a Python of its own: what crashes or hangs there hurts nobody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence

__all__ = ["plain_environment", "python_starts", "try_imports"]

_SCRIPT = """
import importlib, json, os, sys
told = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for name in json.loads(sys.stdin.readline()):
    told.write(name + "\\n"); told.flush()
    why = ""
    try:
        importlib.import_module(name)
    except BaseException as error:
        why = f"{type(error).__name__}: {error}"
    told.write(json.dumps(why[:300]) + "\\n"); told.flush()
os._exit(0)
"""


def plain_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """For trials: nothing opens a window."""
    return {**environ, "MPLBACKEND": "agg", "PYTHONDONTWRITEBYTECODE": "1"}


def python_starts(environ: Mapping[str, str], *, limit_s: float = 30.0) -> str | None:
    """None when Python starts with the overlay; else what it says."""
    argv = [sys.executable, "-c", "print('started')"]
    try:
        result = subprocess.run(
            argv,
            env=dict(environ),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it did not start within {limit_s:.0f} s"
    if result.stdout.endswith("started\n"):
        return None
    lines = result.stderr.strip().splitlines()
    return lines[-1][:300] if lines else f"it ended with status {result.returncode}"


def try_imports(
    names: Sequence[str], environ: Mapping[str, str], *, each_s: float = 60.0, limit_s: float = 300.0
) -> dict[str, str]:
    """Why these modules cannot be imported; those that can are not in the answer.

    One process for all; after a crash or a hang a new one goes on behind the culprit. What was not
    tried within `limit_s` counts as good: unknown is not broken.
    """
    failed: dict[str, str] = {}
    left, end = list(names), time.monotonic() + limit_s
    while left and time.monotonic() < end:
        tried, why = _one_process(left, environ, each_s)
        if not tried:
            tried, why = 1, {left[0]: "Python ends before it can be tried"}
        failed.update({name: words for name, words in why.items() if words})
        left = left[tried:]
    return failed


def _one_process(
    names: Sequence[str], environ: Mapping[str, str], each_s: float
) -> tuple[int, dict[str, str]]:
    """How many names were tried, and what became of each."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SCRIPT],
        env=dict(environ),
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdin is not None and process.stdout is not None
    why: dict[str, str] = {}
    tried = 0
    with process, process.stdin, process.stdout:
        process.stdin.write(json.dumps(list(names)) + "\n")
        process.stdin.flush()
        while name := process.stdout.readline().strip():
            tried += 1
            watch = threading.Timer(each_s, _kill, [process.pid])
            watch.start()
            answer = process.stdout.readline()
            watch.cancel()
            why[name] = json.loads(answer) if answer.strip() else _ended(process, each_s)
    return tried, why


def _kill(pid: int) -> None:
    os.killpg(pid, 9)


def _ended(process: subprocess.Popen[str], each_s: float) -> str:
    code = process.wait()
    return (
        f"importing it takes longer than {each_s:.0f} s"
        if code == -9
        else f"importing it ends Python ({code})"
    )
