"""`allot usage|refund|correct`: what was spent, and entries that operators make by hand."""

from __future__ import annotations

import re
import sys
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import typer
from rich.table import Table

from allotment.client import Client
from allotment.console import AsJson, DataDir, broker, exact, print_json, screen, told
from allotment.errors import WrongUse
from allotment.money import Usage
from allotment.tables import whole_column

__all__ = ["register", "usage_table"]

Because = Annotated[str, typer.Option("--because", help="Why, in a sentence for whom it concerns.")]
Since = Annotated[
    str | None, typer.Option("--from", help="First day, or a time: 2030-01-31.", show_default=False)
]
Until = Annotated[
    str | None, typer.Option("--to", help="The day or time before which it ends.", show_default=False)
]
After = Annotated[
    str | None, typer.Option(help="With --json: `next` of the page before.", show_default=False)
]
Csv = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write every entry as CSV; - is the screen.", show_default=False),
]
Parquet = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write every entry as Parquet.", show_default=False)
]
_NEGATIVE = {"ignore_unknown_options": True}
"""So that -0.50 is an amount."""


def register(app: typer.Typer) -> None:
    """Add these commands to `app`."""
    app.command()(usage)
    app.command()(refund)
    app.command(context_settings=_NEGATIVE)(correct)


def usage(
    since: Since = None,
    until: Until = None,
    by: Annotated[str, typer.Option(help="user, group, flavor, environment, day, kind.")] = "flavor",
    user: Annotated[str | None, typer.Option(help="Only this person's.", show_default=False)] = None,
    group: Annotated[str | None, typer.Option(help="Only charged to it.", show_default=False)] = None,
    as_json: AsJson = False,
    after: After = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="With --json: entries a page.")] = 1000,
    csv: Csv = None,
    parquet: Parquet = None,
    data_dir: DataDir = None,
) -> None:
    """What was spent: yours, or everybody's for operators. This month's unless you say otherwise."""
    asked = {"from": since, "to": until, "user": user, "group": group}
    query = {name: value for name, value in asked.items() if value is not None}
    files = {"csv": csv, "parquet": parquet}
    with told():
        if as_json and (csv or parquet):
            raise WrongUse("--json prints, --csv and --parquet write files.", "Give one of them.")
    with broker(data_dir) as client:
        for kind, path in files.items():
            if path is not None:
                _write(client, query | {"format": kind}, path)
        if csv or parquet:
            return
        page = {"limit": str(limit)} | ({} if after is None else {"after": after})
        document = client.usage(query | page | {"group_by": by})
    if as_json:
        print_json(document)
    else:
        _print(Usage.model_validate(document))


def refund(
    lease: Annotated[str, typer.Argument(help="As in `allot leases`.", metavar="LEASE")],
    amount: Annotated[str, typer.Argument(help="What is given back: 0.50.", metavar="AMOUNT")],
    because: Because,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Operators: give money back for a session, at most what it was charged; its person reads why."""
    _make("refunds", {"lease": lease}, amount, because, as_json=as_json, data_dir=data_dir)


def correct(
    subject: Annotated[
        str, typer.Argument(help="A lease; with --entry one entry of `allot usage --json`.", metavar="LEASE")
    ],
    amount: Annotated[str, typer.Argument(help="What is charged more; -0.50 is less.", metavar="AMOUNT")],
    because: Because,
    entry: Annotated[
        bool, typer.Option("--entry", help="LEASE is an entry's id, such as storage's.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Operators: charge more or less for a session or an entry; its person reads why."""
    about = {"entry" if entry else "lease": subject}
    _make("corrections", about, amount, because, as_json=as_json, data_dir=data_dir)


def _make(
    what: str, about: dict[str, str], amount: str, because: str, *, as_json: bool, data_dir: Path | None
) -> None:
    with told():
        if not re.fullmatch(r"[+-]?[0-9]{1,10}(\.[0-9]{1,6})?", amount):
            raise WrongUse(f"{amount!r} is no amount.", "Write 0.50, with at most 6 digits after the point.")
    body: dict[str, object] = {**about, "amount": amount.removeprefix("+"), "reason": because}
    with broker(data_dir) as client:
        made: dict[str, Any] = client.send("POST", f"usage/{what}", body, key=uuid4().hex)
    if as_json:
        print_json(made)
    else:
        amount = exact(Decimal(made["amount"]))
        screen().print(
            f"Entry {made['id']}: {amount} {made['currency']} for {made['owner']}.", soft_wrap=True
        )


def _write(client: Client, query: dict[str, str], path: Path) -> None:
    """Whole or not at all: what was there stays until the new file is complete."""
    if str(path) == "-":
        client.usage_file(query, sys.stdout.buffer)
        return
    part = path.with_name(f"{path.name}.part")
    try:
        try:
            with part.open("wb") as target:
                client.usage_file(query, target)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise WrongUse(f"{path} cannot be written ({error.strerror}).", "Name another file.") from None
    screen().print(f"Written: {path}", soft_wrap=True)


def _print(found: Usage) -> None:
    last = (found.to - timedelta(microseconds=1)).astimezone()
    screen().print(f"{found.from_.astimezone():%d %b %Y %H:%M} to {last:%d %b %Y %H:%M %Z}")
    if found.rows:
        screen().print(usage_table(found))
    else:
        screen().print("Nothing was charged.")
    screen().print(f"Total: {exact(found.total)} {found.currency}")
    if found.running:
        screen().print(f"Running now and not in it yet: {exact(found.running)} {found.currency}")
    for other in found.other_currencies:
        screen().print(f"There are entries in {other} as well: see them with --csv.")


def usage_table(found: Usage) -> Table:
    """A line a row."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in found.group_by:
        table.add_column(name.capitalize(), overflow="fold")
    figures = {
        "Time": [_hours(row.seconds) for row in found.rows],
        "GPU time": [_hours(row.gpu_seconds) for row in found.rows],
        "Entries": [str(row.entries) for row in found.rows],
        found.currency: [exact(row.amount) for row in found.rows],
    }
    for name, values in figures.items():
        whole_column(table, name, values, right=True)
    for row, *numbers in zip(found.rows, *figures.values(), strict=True):
        table.add_row(*(row.key[name] or "-" for name in found.group_by), *numbers)
    return table


def _hours(seconds: Decimal) -> str:
    return f"{seconds / 3600:,.2f} h"
