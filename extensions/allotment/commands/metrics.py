"""`allot metrics`: samples of sessions for scripts."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Annotated

import typer

from allotment.commands.stop import seconds_of
from allotment.console import DataDir, broker, remark, told
from allotment.errors import Unreachable
from allotment.samples import Samples
from allotment.watching import watch

__all__ = ["register"]

_EARLY = 0.9
"""Rounds are a little early or late: one that is due within a tenth is taken."""

_group = typer.Typer(help="Samples of devices and sessions, for scripts.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.add_typer(_group, name="metrics")


@_group.callback()
def _metrics() -> None:
    """Samples of devices and sessions, for scripts."""


@_group.command("stream")
def stream(
    interval: Annotated[
        str, typer.Option(help="At most one round in this time, such as 5s, 1m; as they come by default.")
    ] = "0s",
    everybody: Annotated[bool, typer.Option("--all", help="Everybody's sessions; for operators.")] = False,
    count: Annotated[int | None, typer.Option(min=1, help="End after this many.", show_default=False)] = None,
    data_dir: DataDir = None,
) -> None:
    """A line of JSON for each round; null is unknown. Goes on by itself after the broker was away."""
    with told():
        every_s = seconds_of(interval)
    with broker(data_dir) as client:
        try:
            _print(watch(client, everybody=everybody), every_s, count)
        except KeyboardInterrupt:
            return
        except BrokenPipeError:
            # whoever read the lines has enough; Python would complain of it once more at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print(rounds: Iterable[Samples | Unreachable], every_s: float, count: int | None) -> None:
    """By the broker's own times, so that a late line makes no other one late. After its clock was set back
    it counts anew: nobody waits until the clock is where it was."""
    last: Samples | None = None
    printed = 0
    for found in rounds:
        if isinstance(found, Unreachable):
            remark(f"{found.sentence} {found.next_step}")
            continue
        if last is not None and 0 <= (found.at - last.at).total_seconds() < every_s * _EARLY:
            continue
        last, printed = found, printed + 1
        sys.stdout.write(found.model_dump_json() + "\n")
        sys.stdout.flush()
        if printed == count:
            return
