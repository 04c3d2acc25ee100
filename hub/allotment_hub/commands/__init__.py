"""Commands of `allot` that touch the machine; found through the entry point group `allotment.commands`."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import typer

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add doctor, people and sim to `app`."""
    for name in ("doctor", "people", "sim"):
        if find_spec(f"{__name__}.{name}"):
            import_module(f"{__name__}.{name}").register(app)
