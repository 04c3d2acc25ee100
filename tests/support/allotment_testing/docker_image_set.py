"""Which images the tests look into, and the notebooks that each one holds."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["ALL", "ENVIRONMENTS", "notebooks_of"]

IMAGES = Path(__file__).resolve().parents[3] / "images"
_FEW = ("minimal", "scipy", "pytorch")
ALL = (*_FEW, "pytorch-devel", "tensorflow", "jax")

ENVIRONMENTS = ALL if os.environ.get("ALLOTMENT_KILL_MATRIX") == "full" else _FEW
"""Building all of them takes a quarter of an hour and 10 GB: ./tests/run full does."""


def notebooks_of(environment: str) -> list[str]:
    """Below /usr/local/share/allotment: the image's tour, then recipes of its own."""
    shared = IMAGES / environment / "files" / "usr" / "local" / "share" / "allotment"
    return sorted((str(file.relative_to(shared)) for file in shared.rglob("*.ipynb")), reverse=True)
