"""What warming an image imports: the modules of its packages, whatever those are called."""

from __future__ import annotations

import subprocess
import sys

from allotment_hub.images.machine import warm_command


def warmed(*packages: str) -> tuple[list[str], set[str]]:
    """The lines that it says, and which modules it loads."""
    _, option, script, *words = warm_command(packages)
    argv = [sys.executable, option, f"{script}\nprint(*sys.modules)", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    *said, loaded = done.stdout.splitlines()
    return said, set(loaded.split())


def test_packages_are_imported_by_what_they_bring() -> None:
    said, loaded = warmed("python", "jupyterlab", "python-dateutil", "no-such-package")
    assert said == []
    assert {"jupyterhub.singleuser", "jupyterlab.labapp", "ipykernel.kernelapp", "dateutil"} <= loaded
