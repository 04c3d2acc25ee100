"""What is to be said about a session's overlay, as data for the notebook and the terminal."""

from __future__ import annotations

import os
import sys

from allotment.packages.layout import overlay_of
from allotment.packages.marker import base_fingerprint, overlay_fingerprint, read_json

__all__ = ["status"]


def status() -> dict[str, object]:
    """`state`: none (nothing installed, or no environment), fine, unchecked (the image changed), broken."""
    overlay = overlay_of(os.environ, sys.version_info[:2])
    installed = "" if overlay is None else overlay_fingerprint(overlay)
    if overlay is None or not installed:
        return {"state": "none"}
    marker = read_json(overlay.marker) or {}
    fine = marker.get("base") == base_fingerprint()
    return {
        "state": "fine" if fine else "unchecked",
        "environment": overlay.environment,
        "python": overlay.python,
    }
