"""A first-run tour: the image's notebook, laid once into the home of who starts it for the first time."""

from __future__ import annotations

import json
import os
from pathlib import Path

__all__ = ["SHARED", "offer_tour"]

SHARED = Path("/usr/local/share/allotment")
"""Where an image keeps tour.ipynb and environment.json."""


def offer_tour(home: Path, *, shared: Path = SHARED) -> Path | None:
    """Lay the tour into `home` as welcome-ENVIRONMENT.ipynb; returns it, None when nothing was done.

    Only once a home and environment: what somebody deleted or changed stays so. OSError when the home
    cannot be written, with nothing half-written left.
    """
    source = shared / "tour.ipynb"
    if not source.is_file():
        return None
    name = str(json.loads((shared / "environment.json").read_text(encoding="utf-8"))["name"])
    marker = home / ".allotment" / "tours" / name
    if os.path.lexists(marker):
        return None
    target = home / f"welcome-{name}.ipynb"
    made = None
    if not os.path.lexists(target):
        _copy(source, target)
        made = target
    # last: a start that was killed before offers it again, and finds the notebook there
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()
    return made


def _copy(source: Path, target: Path) -> None:
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("xb") as out:
            out.write(source.read_bytes())
        part.rename(target)
    finally:
        part.unlink(missing_ok=True)
