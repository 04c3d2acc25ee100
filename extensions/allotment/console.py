"""How every `allot` command reads its settings, prints, and turns an error into one sentence."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.text import Text

from allotment.client import Client
from allotment.errors import AllotmentError
from allotment.settings import find_settings

__all__ = ["AsJson", "DataDir", "broker", "exact", "fail", "print_json", "remark", "screen", "since", "told"]

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        help="The folder of an installation on this machine.",
        show_default=False,
        readable=False,  # where root started it, others may pass through it, not list it
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


_COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""What a terminal obeys, or reads backwards; tab and new line are none of it."""


class Screen(Console):
    """Shows text as it is: people name servers, images and environments, and what they write is no markup
    of ours and no command to somebody else's terminal."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(_COMMANDS.sub("\N{REPLACEMENT CHARACTER}", text), **options)


def screen() -> Console:
    """A console on standard output; wide enough for tables where there is no terminal. No markup in it."""
    width = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else 120
    return Screen(width=width, highlight=False, soft_wrap=False, markup=False, emoji=False)


def remark(text: str, *, style: str = "") -> None:
    """Print to standard error: what a script that reads the output must not find in it."""
    Screen(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False).print(text, style=style)


def fail(error: AllotmentError) -> typer.Exit:
    """Print the sentence and the next step to standard error; raise what this returns."""
    remark(f"{error.sentence} {error.next_step}".strip(), style="red")
    return typer.Exit(error.exit_code)


@contextmanager
def told() -> Iterator[None]:
    """Turn any `AllotmentError` inside into its sentence and exit code."""
    try:
        yield
    except AllotmentError as error:
        raise fail(error) from None


@contextmanager
def broker(data_dir: Path | None) -> Iterator[Client]:
    """A client for this command; errors inside end the command politely."""
    with told(), Client(find_settings(os.environ, data_dir=data_dir)) as client:
        yield client


def print_json(value: BaseModel | Sequence[BaseModel] | dict[str, object]) -> None:
    """One JSON document on standard output; money and times are text, as in the REST interface."""
    if isinstance(value, BaseModel):
        document: object = value.model_dump(mode="json", by_alias=True)
    elif isinstance(value, dict):
        document = value
    else:
        document = [item.model_dump(mode="json", by_alias=True) for item in value]
    sys.stdout.write(json.dumps(document, indent=2) + "\n")


def since(moment: datetime | None) -> str:
    """A time as a person on this machine reads it; a dash when there is none."""
    return moment.astimezone().strftime("%d %b %H:%M %Z") if moment else "-"


def exact(amount: Decimal) -> str:
    """ "0.40": money with all its digits, at least two after the point and no needless zeros."""
    whole, _, rest = format(amount, "f").partition(".")
    return f"{whole}.{rest.rstrip('0').ljust(2, '0')}"
