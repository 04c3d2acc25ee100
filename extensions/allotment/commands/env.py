"""`allot env`: what a person installed in an environment: see it, check it, start it clean, move it aside."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from allotment.commands import env_saved
from allotment.console import AsJson, fail, print_json, screen
from allotment.errors import AllotmentError
from allotment.packages.check import check_and_note, installed
from allotment.packages.layout import SWITCH, Overlay, overlay_of, overlays_below, packages_folder
from allotment.packages.lock import LockUnavailable
from allotment.packages.marker import overlay_fingerprint
from allotment.packages.report import describe
from allotment.packages.tidy import move_aside, start_clean

__all__ = ["register"]

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Environment = Annotated[
    str | None,
    typer.Option("--environment", help="Another one than this session's.", show_default=False),
]
_group = typer.Typer(
    help="Packages that you installed: see, check, start clean, share.", no_args_is_help=True
)


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    env_saved.register(_group)
    app.add_typer(_group, name="env")


@_group.command("list")
def list_overlays(as_json: AsJson = False) -> None:
    """What this home holds, by environment and Python version."""
    here = overlay_of(os.environ, sys.version_info[:2])
    found = [_row(one, here) for one in overlays_below(packages_folder(os.environ))]
    if as_json:
        print_json({"overlays": found})
    elif found:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("Environment", "Python", "Packages", "State", "Folder"):
            table.add_column(name, overflow="fold")
        for row in found:
            table.add_row(*(str(row[key]) for key in ("environment", "python", "packages", "state", "root")))
        screen().print(table)
    else:
        screen().print("You have installed nothing: %pip install in a notebook, pip install in a terminal.")


def _row(one: Overlay, here: Overlay | None) -> dict[str, object]:
    """Only the running environment's state can be told: the others' images are not here."""
    running = here is not None and one.root == here.root
    state = describe(one)["state"] if running else "not this session's"
    packages = len(installed(one))
    return {
        "environment": one.environment,
        "python": one.python,
        "packages": packages,
        "state": state if packages else "nothing installed",
        "root": one.root,
    }


@_group.command()
def check(as_json: AsJson = False) -> None:
    """Try what you installed with this session's image. Exit 1 when something does not work."""
    overlay = _overlay(None)
    with _told():
        problems = check_and_note(overlay, os.environ) if overlay_fingerprint(overlay) else []
    if as_json:
        print_json({**describe(overlay), "problems": problems})
    elif problems:
        for sentence in problems:
            screen().print(sentence, markup=False, soft_wrap=True)
        screen().print(
            "Move it aside (allot env aside), start clean (allot env clean), or install again with pip."
        )
    else:
        screen().print(f"Everything that you installed in {overlay.environment} works.")
    if problems:
        raise typer.Exit(1)


@_group.command()
def aside(environment: Environment = None, yes: Yes = False) -> None:
    """Move what you installed aside: nothing is lost, and Python starts without it."""
    overlay = _overlay(environment)
    _ask(f"Move what you installed in {overlay.environment} aside?", yes)
    with _told():
        moved = move_aside(overlay)
    if moved is None:
        screen().print(f"You have installed nothing in {overlay.environment}.")
        return
    screen().print(f"It lies in {moved} now. Restart your kernels.", markup=False, soft_wrap=True)


@_group.command()
def clean(environment: Environment = None, yes: Yes = False) -> None:
    """Delete what you installed, and start clean. Files elsewhere in your home stay."""
    overlay = _overlay(environment)
    _ask(f"Delete what you installed in {overlay.environment} ({len(installed(overlay))} packages)?", yes)
    with _told():
        gone = start_clean(overlay)
    screen().print("Deleted. Restart your kernels." if gone else "There was nothing to delete.")


def _overlay(environment: str | None) -> Overlay:
    """This session's, or another environment's of the same Python."""
    named = {} if environment is None else {"ALLOTMENT_ENVIRONMENT": environment, "PYTHONNOUSERSITE": SWITCH}
    found = overlay_of({**os.environ, **named}, sys.version_info[:2])
    if found is not None:
        return found
    if environment is None:
        raise fail(
            AllotmentError(
                "What is installed here belongs to no environment: this session runs from no image.",
                "Run it in a terminal of such a session, or name one with --environment.",
            )
        )
    raise fail(AllotmentError(f"{environment!r} is no environment's name.", "See allot env list."))


def _ask(question: str, yes: bool) -> None:
    if not yes and not typer.confirm(question):
        raise typer.Exit(1)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except LockUnavailable as error:
        raise fail(AllotmentError(str(error), "")) from None
    except OSError as error:
        where = f" ({Path(str(error.filename)).name})" if error.filename else ""
        sentence = f"It could not be done: {error.strerror}{where}."
        raise fail(AllotmentError(sentence, "See whether your home is full: df -h ~")) from None
