"""The command `allot`: base commands, and those that other distributions add by entry point."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points

import typer

from allotment.commands import register

__all__ = ["GROUP", "build_app", "main"]

GROUP = "allotment.commands"


def build_app() -> typer.Typer:
    """The app with every command that is installed here.

    An entry point of the group is a callable that takes the app. One that cannot be loaded ends the
    command with its name: a half-working `allot` would hide a broken installation.
    """
    app = typer.Typer(
        name="allot",
        help="See and manage GPU slices, sessions and leases of Allotment.\n\n"
        "Exit codes: 0 done, 1 refused or something does not work, 2 wrong use or nothing answers.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    register(app)
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        entry.load()(app)
    return app


def main() -> None:
    """Entry point of the console script."""
    try:
        app = build_app()
    except ImportError as error:
        remedy = "Run ./deploy/up again to repair it."
        sys.stderr.write(f"Allotment is not installed completely ({error}). {remedy}\n")
        raise SystemExit(2) from None
    app()
