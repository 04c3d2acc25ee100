"""`allot stop`: end a session now, or say that it ends later."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated
from urllib.parse import quote

import typer

from allotment.console import DataDir, broker, screen, since, told
from allotment.errors import WrongUse

__all__ = ["seconds_of", "stop"]

_UNITS = {"": 60, "s": 1, "m": 60, "h": 3600, "d": 86400}


def stop(
    lease: Annotated[str, typer.Argument(help="As in `allot leases`.", metavar="LEASE")],
    later: Annotated[
        str | None, typer.Option("--in", help="Announce it: 10m, 2h, 1d.", show_default=False)
    ] = None,
    because: Annotated[
        str | None, typer.Option(help="Why, in a sentence for the person.", show_default=False)
    ] = None,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Call an announced stop off.")] = False,
    data_dir: DataDir = None,
) -> None:
    """End a session of yours; operators anybody's. Documents open in a browser are saved first."""
    with told():
        after_s = None if later is None else seconds_of(later)
        if withdraw and (later is not None or because is not None):
            raise WrongUse("--withdraw goes alone.", "allot stop LEASE --withdraw.")
    path = f"leases/{quote(lease, safe='')}"
    with broker(data_dir) as client:
        if withdraw:
            count = client.send("DELETE", f"{path}/stop")["count"]
            screen().print("The stop is called off." if count else "No stop was announced.")
        elif after_s is None and because is None:
            state = client.send("DELETE", path)["state"]
            screen().print("It is over." if state == "ended" else "It is being stopped.")
        else:
            body: dict[str, object] = {"after_s": after_s or 0, "sentence": because or ""}
            notice = client.send("POST", f"{path}/stop", body)
            moment = since(datetime.fromisoformat(notice["stop_at"]))
            screen().print(f"It is going to be stopped at {moment}; its person was told.")


def seconds_of(text: str) -> float:
    """`90s`, `10m`, `2h`, `1d`; a bare number is minutes. Raises `WrongUse`."""
    found = re.fullmatch(r"(\d{1,6})\s*([smhd]?)", text.strip())
    if found is None:
        raise WrongUse(f"{text!r} is no time to wait.", "Write 10m, 2h or 1d.")
    return float(found.group(1)) * _UNITS[found.group(2)]
