"""`allot top`: how hard sessions work and what they cost, live in the terminal."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from allotment.client import Client
from allotment.commands.top_table import headline, load_table
from allotment.console import AsJson, DataDir, broker, print_json, screen
from allotment.errors import Unreachable
from allotment.samples import Samples
from allotment.watching import watch

__all__ = ["top"]

Everybody = Annotated[bool, typer.Option("--all", help="Everybody's sessions; for operators.")]


def top(
    everybody: Everybody = False,
    once: Annotated[
        bool, typer.Option("--once", help="One look, then end; so it is without a terminal.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Sessions with their GPU, memory, power, CPU, cost and what is left, as it changes. Ctrl-C ends it."""
    with broker(data_dir) as client:
        console = screen()
        if once or as_json or not console.is_terminal:
            found = _first(client, everybody=everybody)
            if as_json:
                print_json(found)
            else:
                console.print(_view(found, None, console, everybody=everybody))
            return
        _follow(client, console, everybody=everybody)


def _first(client: Client, *, everybody: bool) -> Samples:
    with closing(client.samples(everybody=everybody)) as rounds:
        for found in rounds:
            return found
    raise Unreachable("The broker ended the stream.", "Try again in a moment.")


def _follow(client: Client, console: Console, *, everybody: bool) -> None:
    """On the alternate screen, as `less` does it: the terminal's own text is there again afterwards."""
    last: Samples | None = None
    with Live(console=console, screen=True, auto_refresh=False) as live:
        try:
            for found in watch(client, everybody=everybody):
                trouble = found if isinstance(found, Unreachable) else None
                last = last if isinstance(found, Unreachable) else found
                live.update(_view(last, trouble, console, everybody=everybody), refresh=True)
        except KeyboardInterrupt:
            return


def _view(
    found: Samples | None, trouble: Unreachable | None, console: Console, *, everybody: bool
) -> RenderableType:
    parts: list[RenderableType] = []
    if trouble is not None:
        text = f"{trouble.sentence} What you see is what was known before; it is asked again."
        parts.append(Text(text, style="yellow"))
    if found is not None:
        parts.append(headline(found, everybody=everybody))
        if found.leases:
            parts.append(load_table(found, width=console.width, everybody=everybody))
        else:
            more = "" if everybody else " Operators see everybody's with --all."
            parts.append(Text(f"Start one in the browser.{more}"))
    return Group(*parts)
