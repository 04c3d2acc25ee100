"""`allot say`: a line of text in JupyterLab of one session, or of every one."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated
from urllib.parse import quote

import typer

from allotment.console import DataDir, broker, screen, told
from allotment.errors import WrongUse

__all__ = ["say"]


class Level(StrEnum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def say(
    words: Annotated[
        list[str], typer.Argument(help="LEASE (as in `allot leases`), unless --all; then the text.")
    ],
    everybody: Annotated[bool, typer.Option("--all", help="In every session that runs.")] = False,
    level: Annotated[Level, typer.Option(help="How it is shown.")] = Level.INFO,
    data_dir: DataDir = None,
) -> None:
    """Operators: show a message in sessions. It also appears to who opens JupyterLab later."""
    with told():
        lease, text = _parts(words, everybody=everybody)
    with broker(data_dir) as client:
        body: dict[str, object] = {"sentence": text, "level": level.value}
        if everybody:
            count = client.send("POST", "notices", body)["count"]
            screen().print(f"{count} session{'' if count == 1 else 's'} told.")
        else:
            client.send("POST", f"leases/{quote(lease, safe='')}/notices", body)
            screen().print("Told.")


def _parts(words: list[str], *, everybody: bool) -> tuple[str, str]:
    """(lease, text); the text may come as one argument or as many."""
    lease, rest = ("", words) if everybody else (words[0], words[1:])
    text = " ".join(rest).strip()
    if not text:
        raise WrongUse("There is nothing to say.", "allot say LEASE TEXT, or allot say --all TEXT.")
    return lease, text
