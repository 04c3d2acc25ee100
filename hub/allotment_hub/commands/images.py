"""`allot images`: the images of this installation: list, pin, retire, remove."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from allotment.client import Client
from allotment.console import AsJson, DataDir, broker, print_json, screen
from allotment_spawner.engines.docker_pull import in_bytes
from allotment_spawner.launch.names import version_of
from rich.table import Table

from allotment_hub.commands import image_making
from allotment_hub.commands.image_tools import failed, machine_of
from allotment_hub.commands.installation import paths_of, polite, site_of
from allotment_hub.host.checkout import version
from allotment_hub.host.errors import HostError
from allotment_hub.images.collect import collect
from allotment_hub.images.machine import BuildLayer, MachineImage
from allotment_hub.images.plan import Known, Verdict, old_layers, plan

__all__ = ["register"]

Version = Annotated[
    str, typer.Argument(help="A version or digest, as in `allot images list`.", metavar="VERSION")
]
_FEWEST, _MOST = 12, 64
_group = typer.Typer(
    help="Images that sessions run from: list, build, pull, warm, pin, retire, gc.", no_args_is_help=True
)


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    image_making.register(_group)
    app.add_typer(_group, name="images")


@_group.command("list")
def list_images(
    everything: Annotated[bool, typer.Option("--all", help="Removed ones too.")] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Every image, newest first: its state, size, and how many live sessions use it."""
    with broker(data_dir) as client:
        found = [one for one in _registered(client) if everything or one["state"] != "removed"]
    if as_json:
        print_json({"images": found})
    elif found:
        screen().print(_table(found))
    else:
        screen().print("No images. On Docker, `allot images build minimal` makes one.")


def _registered(client: Client) -> list[dict[str, Any]]:
    return list(client.send("GET", "images"))


def _table(found: Sequence[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Version", no_wrap=True, min_width=12)
    for name in ("Environment", "Label", "State", "Size", "Sessions", "Can be pulled"):
        table.add_column(name, overflow="fold")
    for one in found:
        size = "unknown" if one["size_bytes"] is None else in_bytes(one["size_bytes"])
        table.add_row(
            one["version"], one["environment"], one["label"], _state(one), size,
            str(one["used_by"] or ""), "yes" if one["source"] else "",
        )  # fmt: skip
    return table


def _state(one: dict[str, Any]) -> str:
    words = [str(one["state"])]
    if one["pinned"]:
        words.append("pinned")
    if one["replaced_by"] and one["state"] in ("retired", "removed"):
        words.append(f"replaced by {one['replaced_by']}")
    return ", ".join(words)


@_group.command()
def pin(
    version: Version,
    off: Annotated[bool, typer.Option("--off", help="Offer the newest again.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Offer this version, whatever is newer; it is never removed."""
    with broker(data_dir) as client:
        done = client.send("DELETE" if off else "PUT", f"images/{_checked(version)}/pin")
    what = "is not pinned any more" if off else "is what people are offered"
    screen().print(f"{done['environment']} {done['version']} ({done['label']}) {what}.")


@_group.command()
def retire(
    version: Version,
    replaced_by: Annotated[
        str | None, typer.Option(help="The version to take instead; else whatever is offered.")
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Let people start it again.")] = False,
    data_dir: DataDir = None,
) -> None:
    """No new session starts from it, and who asks for it is told what replaces it. Running ones go on."""
    with broker(data_dir) as client:
        path = f"images/{_checked(version)}/retired"
        by = None if replaced_by is None else _checked(replaced_by)
        done = client.send("DELETE", path) if undo else client.send("PUT", path, {"replaced_by": by})
    name = f"{done['environment']} {done['version']} ({done['label']})"
    screen().print(f"{name} can be started again." if undo else f"{name} is retired; {_users(done)}.")


def _users(done: dict[str, Any]) -> str:
    count = int(done["used_by"])
    return f"{count} live session{'s' * (count != 1)} {'keep' if count != 1 else 'keeps'} it"


def _checked(version: str) -> str:
    digits = version.removeprefix("sha256:")
    if not _FEWEST <= len(digits) <= _MOST or not all(one in "0123456789abcdef" for one in digits):
        raise failed(f"{version} is no version: these are 12 digits, see `allot images list`.")
    return version


@_group.command()
def gc(
    keep: Annotated[int, typer.Option(min=1, max=100, help="Newest versions of each that stay.")] = 2,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Remove old images that nobody needs: never what a session, a container, a pin or a saved environment
    uses, nor what is offered."""
    with polite(), broker(data_dir) as client, machine_of(data_dir) as machine:
        here = {one.image.digest: one for one in machine.all()}
        verdict = plan([_known(one) for one in _registered(client)], here, keep=keep)
        prefix = site_of(paths_of(data_dir)).docker.image_prefix
        layers = old_layers(machine.build_layers(), prefix=prefix, version=version())
        _show(verdict, layers)
        if dry_run or not (verdict.goes or verdict.lost or layers):
            return
        things = [*verdict.goes, *layers]
        if things and not yes and not typer.confirm(f"Remove {_counted(things)}?"):
            raise HostError("Nothing was removed.")
        gone = collect(verdict, broker=client, machine=machine, say=typer.echo)
        # after the images that are built upon them
        gone += sum(machine.drop_layer(layer) for layer in layers)
    typer.echo(f"{_counted(range(gone))} removed.")


def _known(one: dict[str, Any]) -> Known:
    return Known(
        digest=one["digest"],
        environment=one["environment"],
        label=one["label"],
        reference=one["reference"],
        state=one["state"],
        pinned=one["pinned"],
        used_by=one["used_by"],
    )


def _show(verdict: Verdict, layers: Sequence[BuildLayer]) -> None:
    for stay in verdict.stays:
        typer.echo(f"stays   {_named(stay.known)}: {stay.why}")
    for known, image in verdict.goes:
        typer.echo(f"goes    {_named(known)}: {known.state}{_size(image)}")
    for layer in layers:
        name = ", ".join(layer.tags) or layer.digest
        typer.echo(f"goes    {name}: left over from a build, {in_bytes(layer.size_bytes)}")
    if verdict.goes or layers:
        most = verdict.bytes_freed + sum(layer.size_bytes for layer in layers)
        typer.echo(f"At most {in_bytes(most)} come free; what images share stays.")
    else:
        typer.echo("Nothing can go.")


def _named(known: Known) -> str:
    return f"{known.environment} {version_of(known.digest)} ({known.label})"


def _size(image: MachineImage) -> str:
    size = image.image.size_bytes
    return "" if size is None else f", {in_bytes(size)}"


def _counted(things: Sequence[object]) -> str:
    return f"{len(things)} image{'s' * (len(things) != 1)}"
