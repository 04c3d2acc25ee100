"""`allot env save|saved|show|approve|refuse`: an overlay becomes an environment that others can pick."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from typing import Annotated
from urllib.parse import quote

import typer
from rich.table import Table

from allotment.console import AsJson, DataDir, broker, fail, print_json, remark, screen, since
from allotment.errors import AllotmentError
from allotment.models import SavedEnvironment
from allotment.packages.freeze import freeze
from allotment.packages.layout import overlay_of

__all__ = ["register"]

Name = Annotated[str, typer.Argument(help="The name that the environment gets.")]


def register(group: typer.Typer) -> None:
    """Add these commands to `allot env`."""
    for command in (save, saved, show, approve, refuse):
        group.command()(command)


def save(
    name: Name,
    title: Annotated[str, typer.Option(help="What people read; the name by default.")] = "",
    as_json: AsJson = False,
) -> None:
    """Ask for an environment with exactly what you installed here; an operator approves it."""
    overlay = overlay_of(os.environ, sys.version_info[:2])
    frozen = None if overlay is None else freeze(overlay)
    if overlay is None or frozen is None or not frozen.pins:
        raise fail(
            AllotmentError(
                "There is nothing to save: you have installed no packages in this session's environment.",
                "Install some with %pip install, in a session.",
            )
        )
    for sentence in frozen.left_out:
        remark(f"Left out: {sentence}")
    body: dict[str, object] = {
        "title": title or name,
        "base": overlay.environment,
        "base_version": os.environ.get("ALLOTMENT_VERSION") or None,
        "packages": [asdict(pin) for pin in frozen.pins],
    }
    with broker(None) as client:
        found = client.save(name, body)
    if as_json:
        print_json(found)
        return
    count = "1 package" if len(frozen.pins) == 1 else f"{len(frozen.pins)} packages"
    screen().print(f"{count} upon {found.base}: saved as {found.name}.")
    screen().print("It can be picked by others when an operator has approved and built it.")


def saved(as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Environments that people saved: yours and the approved ones; all for operators."""
    with broker(data_dir) as client:
        found = client.saved()
    if as_json:
        print_json(found)
        return
    if not found:
        screen().print("Nobody has saved an environment yet: allot env save NAME, in a session.")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("Name", "Title", "Upon", "Packages", "By", "State", "Since"):
        table.add_column(heading, overflow="fold")
    for one in found:
        table.add_row(
            one.name, one.title, one.base, str(len(one.packages)), one.owner, one.state,
            since(one.decided_at or one.asked_at),
        )  # fmt: skip
    screen().print(table)


def show(name: Name, as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Each package of a saved environment, as it would be installed."""
    with broker(data_dir) as client:
        found = client.saved_one(name)
    if as_json:
        print_json(found)
        return
    _print(found)


def approve(
    name: Name,
    allow_links: Annotated[
        bool,
        typer.Option("--allow-links", help="Also packages that come from an address instead of an index."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Operators: agree to a saved environment. Its packages run their own code while it is built."""
    with broker(data_dir) as client:
        found = client.saved_one(name)
        _print(found)
        if not yes and not typer.confirm("Offer an environment with these packages?"):
            raise typer.Exit(1)
        # what was looked at, not what has been saved under the name since then
        body = {"allow_links": allow_links, "checksum": found.checksum}
        client.send("POST", f"saved/{quote(name, safe='')}/approve", body)
    screen().print(f"Approved. Build it: allot images build {name}")


def refuse(
    name: Name,
    because: Annotated[str, typer.Option("--because", help="What its owner reads.")],
    data_dir: DataDir = None,
) -> None:
    """Operators: say no, with the reason."""
    with broker(data_dir) as client:
        client.send("POST", f"saved/{quote(name, safe='')}/refuse", {"because": because})
    screen().print(f"{name} is refused; its owner reads why.", markup=False)


def _print(found: SavedEnvironment) -> None:
    head = f"{found.name}: {found.title}, upon {found.base}, saved by {found.owner}, {found.state}"
    screen().print(head, markup=False, soft_wrap=True)
    if found.note:
        screen().print(f"  {found.note}", markup=False, soft_wrap=True)
    for one in found.packages:
        where = f" from {one.link}" if one.link else ""
        screen().print(f"  {one.name}=={one.version}{where}", markup=False, soft_wrap=True)
