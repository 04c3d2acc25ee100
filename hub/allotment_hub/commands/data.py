"""`allot data`: the registry of datasets and their cache on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import quote

import typer
from allotment.client import Client
from allotment.console import AsJson, DataDir, broker, fail, print_json, screen
from allotment.errors import AllotmentError
from allotment_spawner.engines.docker_pull import in_bytes
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
from rich.table import Table

__all__ = ["register"]

Name = Annotated[str, typer.Argument(help="The dataset's name.", metavar="NAME")]
Names = Annotated[list[str], typer.Argument(help="Names of datasets.", metavar="NAME…")]
_group = typer.Typer(help="Datasets: add, list, warm, pin, evict, remove.", no_args_is_help=True)
_LOOK_S = 0.5


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.add_typer(_group, name="data")


@_group.command()
def add(
    name: Annotated[str, typer.Argument(help="What people ask for: a word of a-z, 0-9, '.', '_', '-'.")],
    source: Annotated[
        str, typer.Argument(help="https://…, s3://BUCKET/KEY, or a path in an allowed folder.")
    ],
    title: Annotated[str, typer.Option(help="Shown in the form.")] = "",
    description: Annotated[str, typer.Option(help="Shown below the title.")] = "",
    licence: Annotated[str, typer.Option(help="Under which terms people may use it.")] = "",
    sha256: Annotated[str | None, typer.Option(help="What the publisher says its SHA-256 is.")] = None,
    size: Annotated[
        int | None, typer.Option(help="How many bytes it has, where the source does not say.")
    ] = None,
    unpack: Annotated[bool, typer.Option("--unpack", help="It is a tar or zip file: unpack it.")] = False,
    group: Annotated[
        list[str] | None, typer.Option(help="Only for members of this group; repeatable.")
    ] = None,
    pin: Annotated[bool, typer.Option("--pin", help="It never leaves the cache for another.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Change the one of this name.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Register a dataset; it is fetched when somebody asks for it, or by `allot data warm`."""
    body = {
        "source": source,
        "title": title,
        "description": description,
        "licence": licence,
        "checksum": None if sha256 is None else sha256.lower(),
        "size_bytes": size,
        "unpack": unpack,
        "groups": group or None,
        "pinned": pin,
    }
    with broker(data_dir) as client:
        if not replace and any(one["name"] == name for one in _registry(client)):
            raise AllotmentError(f"There is a dataset called {name} already.", "Change it with --replace.")
        client.send("PUT", _path(name), body)
    screen().print(f"{name} is registered. `allot data warm {name}` fetches it now.", markup=False)
    if not sha256:
        screen().print("Without --sha256 the first fetch decides what it must contain from then on.")


@_group.command("list")
def list_datasets(as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Every dataset: whether it is here, how large it is, where it comes from."""
    with broker(data_dir) as client:
        found = _registry(client)
    if as_json:
        print_json({"datasets": found})
    elif found:
        screen().print(_table(found))
        for one in found:
            if one["view"]["state"] == "failed":
                screen().print(f"{one['name']}: {one['view']['reason']}", markup=False)
    else:
        screen().print("No datasets. `allot data add NAME SOURCE` registers one.")


@_group.command()
def warm(
    names: Names,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return at once; it goes on.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Fetch datasets into the cache now, so that no session waits for them."""
    with broker(data_dir) as client:
        for name in dict.fromkeys(names):
            client.send("POST", f"{_path(name)}/fetch")
        failed = [] if no_wait else _watch(client, list(dict.fromkeys(names)))
    for one in failed:
        reason = str(one["view"]["reason"])
        fail(AllotmentError(f"{one['name']} did not come: {reason}", "See `allot data list`."))
    if failed:
        raise typer.Exit(1)


@_group.command()
def pin(
    name: Name,
    off: Annotated[bool, typer.Option("--off", help="Let it leave the cache again.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Keep a dataset in the cache whatever else needs the space."""
    with broker(data_dir) as client:
        client.send("PUT", f"{_path(name)}/pinned", {"pinned": not off})
    screen().print(f"{name} is {'no longer ' if off else ''}pinned.", markup=False)


@_group.command()
def evict(names: Names, data_dir: DataDir = None) -> None:
    """Remove datasets from the cache; they stay registered."""
    with broker(data_dir) as client:
        for name in names:
            client.send("DELETE", f"{_path(name)}/cached")
            screen().print(f"{name} is out of the cache.", markup=False)


@_group.command()
def remove(
    names: Names,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Remove datasets from the registry and the cache."""
    if not yes and not typer.confirm(f"Remove {', '.join(names)} from registry and cache?"):
        raise fail(AllotmentError("Nothing was removed.", ""))
    with broker(data_dir) as client:
        for name in names:
            client.send("DELETE", _path(name))
            screen().print(f"{name} is removed.", markup=False)


def _path(name: str) -> str:
    return f"registry/datasets/{quote(name, safe='')}"


def _registry(client: Client) -> list[dict[str, Any]]:
    return list(client.send("GET", "registry/datasets"))


def _watch(client: Client, names: Sequence[str]) -> list[dict[str, Any]]:
    """Show how far they are until each is here or failed; returns the failed ones."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=screen(), transient=False) as shown:
        tasks = {name: shown.add_task(name, total=None) for name in names}
        while True:
            found = {one["name"]: one for one in _registry(client) if one["name"] in tasks}
            for name, one in found.items():
                view = one["view"]
                done = view["size_bytes"] if view["state"] == "ready" else view["got_bytes"]
                shown.update(tasks[name], total=view["size_bytes"], completed=done or 0)
            if all(one["view"]["state"] != "fetching" for one in found.values()):
                return [one for one in found.values() if one["view"]["state"] != "ready"]
            time.sleep(_LOOK_S)


def _table(found: Sequence[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Dataset", no_wrap=True)
    for name in ("State", "Size", "Files", "Groups", "Licence", "Source"):
        table.add_column(name, overflow="fold")
    for one in found:
        size = one["view"]["size_bytes"]
        table.add_row(
            one["name"], _state(one), "unknown" if size is None else in_bytes(size), str(one["files"] or ""),
            ", ".join(one["groups"] or ("everybody",)), one["licence"], _source(one["source"]),
        )  # fmt: skip
    return table


def _state(one: dict[str, Any]) -> str:
    view = one["view"]
    words = str(view["state"])
    if view["state"] == "fetching" and view["got_bytes"]:
        words += f" ({in_bytes(view['got_bytes'])})"
    return f"{words}, pinned" if one["pinned"] else words


def _source(text: str) -> str:
    """Without what follows the `?`: addresses that are signed carry their secret there."""
    return text.partition("?")[0] + ("?…" if "?" in text else "")
