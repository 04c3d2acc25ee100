"""What is to be said about a session's overlay, as data for the notebook and the terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allotment.packages.layout import Overlay, overlay_of
from allotment.packages.marker import base_fingerprint, overlay_fingerprint, read_json

__all__ = ["begin_check", "describe", "status"]

_CHOICES = (
    {"id": "aside", "title": "Move aside", "command": "allot env aside --yes"},
    {"id": "clean", "title": "Start clean", "command": "allot env clean --yes"},
)


def status() -> dict[str, Any]:
    """This session's overlay. Reads a few small files, runs nothing; members as in `describe`."""
    overlay = overlay_of(os.environ, sys.version_info[:2])
    return {"state": "none"} if overlay is None else describe(overlay)


def describe(overlay: Overlay) -> dict[str, Any]:
    """`state`: none (nothing is installed), fine, unchecked (the image changed, or a pip was killed), broken.

    For all but none also `environment`, `python`, `root`, `problems` (sentences); for broken ones
    `sentence`, `next_step` and `choices` (id, title, command), what a person is offered.
    """
    installed = overlay_fingerprint(overlay)
    if not installed:
        return {"state": "none"}
    state, problems = _state(overlay, installed)
    found: dict[str, Any] = {
        "state": state,
        "environment": overlay.environment,
        "python": overlay.python,
        "root": overlay.root,
        "problems": problems,
    }
    if state == "broken":
        found["sentence"] = (
            f"Packages that you installed in {overlay.environment} do not work with its present version: "
            + problems[0]
        )
        found["next_step"] = (
            "Move them aside (allot env aside), start clean (allot env clean), or install them again."
        )
        found["choices"] = [dict(one) for one in _CHOICES]
    return found


def _state(overlay: Overlay, installed: str) -> tuple[str, list[str]]:
    base = base_fingerprint()
    checked = read_json(overlay.checked) or {}
    problems = [str(one) for one in checked.get("problems") or ()]
    unfinished = Path(overlay.unfinished).exists()
    if checked.get("base") == base and checked.get("overlay") == installed and not unfinished:
        return ("broken" if problems else "fine"), problems
    made_for = (read_json(overlay.marker) or {}).get("base")
    return ("fine" if made_for == base and not unfinished else "unchecked"), []


def begin_check(environ: Mapping[str, str] = os.environ) -> bool:
    """Check in the background what nobody has checked with this image yet; whether there was a need.

    The result lies beside the overlay: `status` and every new terminal tell it.
    """
    overlay = overlay_of(environ, sys.version_info[:2])
    if overlay is None or describe(overlay)["state"] != "unchecked":
        return False
    subprocess.Popen(
        # -I: the judge is not made of what it judges
        ["nice", "-n", "10", sys.executable, "-I", "-m", "allotment.packages.check"],
        env=dict(environ),
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return True
