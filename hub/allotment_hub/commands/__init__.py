"""Commands of `allot` that touch the machine; found through the entry point group `allotment.commands`."""

from __future__ import annotations

import typer

from allotment_hub.commands import data, doctor, heal, images, people, sim

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add data, doctor, heal, images, people and sim to `app`."""
    for module in (data, doctor, heal, images, people, sim):
        module.register(app)
