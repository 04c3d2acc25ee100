"""Commands of `allot` that touch the machine; found through the entry point group `allotment.commands`."""

from __future__ import annotations

import typer

from allotment_hub.commands import doctor, people, sim

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add doctor, people and sim to `app`."""
    for module in (doctor, people, sim):
        module.register(app)
