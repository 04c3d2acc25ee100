"""For which image an overlay was begun: what the image itself holds, not what it is called."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import platform
import site
import time
from pathlib import Path
from typing import Any

from allotment.packages.layout import Overlay

__all__ = ["base_fingerprint", "begin", "mark", "overlay_fingerprint", "read_json", "write_json"]

_KINDS = (".dist-info", ".egg-info")


def base_fingerprint() -> str:
    """Of the image's Python and of every package that it brings, by name and version."""
    found = [platform.python_version()]
    for folder in site.getsitepackages():
        found += [f"{Path(folder).name}/{name}" for name in _distributions(folder)]
    return hashlib.sha256("\n".join(found).encode()).hexdigest()


def overlay_fingerprint(overlay: Overlay) -> str:
    """Of what is installed in the overlay, names and times; "" where it is empty."""
    found = []
    for name in _distributions(overlay.site_packages):
        try:
            found.append(f"{name} {Path(overlay.site_packages, name).stat().st_mtime_ns}")
        except OSError:
            found.append(f"{name} gone")
    return hashlib.sha256("\n".join(found).encode()).hexdigest() if found else ""


def begin(overlay: Overlay) -> None:
    """For a pip that is about to write: until it ends in order, nobody knows what is whole."""
    mark(overlay)
    Path(overlay.unfinished).touch()
    # what was broken is being repaired, or broken otherwise
    Path(overlay.warning).unlink(missing_ok=True)
    atexit.register(Path(overlay.unfinished).unlink, missing_ok=True)


def mark(overlay: Overlay, *, anew: bool = False) -> None:
    """Note the image that runs now; an older note stays unless `anew`, so that the check is not missed."""
    if not anew and read_json(overlay.marker) is not None:
        return
    write_json(
        overlay.marker,
        {
            "base": base_fingerprint(),
            "environment": overlay.environment,
            "version": os.environ.get("ALLOTMENT_VERSION") or None,
            "python": platform.python_version(),
            "made_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        },
    )


def read_json(path: str) -> dict[str, Any] | None:
    """The object in this file; None where there is none that can be read."""
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write_json(path: str, document: dict[str, Any]) -> None:
    """Whole or not at all. Raises `OSError`."""
    part = Path(f"{path}.{os.getpid()}.part")
    part.write_text(json.dumps(document, indent=1), encoding="utf-8")
    part.replace(path)


def _distributions(folder: str) -> list[str]:
    try:
        return sorted(one.name for one in Path(folder).iterdir() if one.name.endswith(_KINDS))
    except OSError:
        return []
