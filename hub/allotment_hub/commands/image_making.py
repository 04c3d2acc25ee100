"""`allot images build|pull|warm`: new images for this installation, with their progress."""

from __future__ import annotations

import os
import re
from itertools import takewhile
from typing import Annotated, Any
from urllib.parse import quote

import typer
from allotment.client import Client
from allotment.console import DataDir, broker
from allotment.errors import Refused
from allotment_spawner.core.errors import UnknownEnvironment
from allotment_spawner.engines.docker_pull import PullFailed, PullProgress, in_bytes
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn

from allotment_hub.broker.services.saved_views import SavedView
from allotment_hub.commands.image_tools import failed, machine_of
from allotment_hub.commands.installation import paths_of, polite, site_of
from allotment_hub.config_loading import load_catalog, load_environment
from allotment_hub.host.checkout import CHECKOUT
from allotment_hub.host.errors import HostError
from allotment_hub.images.building import BuildFailed, run_build
from allotment_hub.images.describe import FoundImage
from allotment_hub.images.machine import MachineImages
from allotment_hub.images.registering import registration
from allotment_hub.images.saved import drop_folder, write_folder
from allotment_hub.paths import Paths
from allotment_hub.site import DockerSettings

__all__ = ["Bars", "lay_out_saved", "register"]

_ANY = {"allow_extra_args": True, "ignore_unknown_options": True}
_SAVED_NAME = re.compile(r"(?=.{1,40}\Z)[a-z0-9]+(-[a-z0-9]+)*")
_SAVED = "environments"
"""Folder in the data directory of environments that people saved and an operator approved."""


def register(group: typer.Typer) -> None:
    """Add the commands to `allot images`."""
    group.command(context_settings=_ANY)(build)
    group.command()(pull)
    group.command()(warm)


def build(
    names: Annotated[
        list[str],
        typer.Argument(help="Environments; options of images/build may follow them.", metavar="NAME..."),
    ],
    data_dir: DataDir = None,
) -> None:
    """Build images and offer them: running sessions keep theirs, new ones get the new version."""
    wanted = list(takewhile(lambda name: not name.startswith("-"), names))
    if not wanted:
        raise failed("Name an environment first, then options of images/build.")
    paths = paths_of(data_dir)
    with polite(), broker(data_dir) as client, machine_of(data_dir) as machine:
        docker = site_of(paths).docker
        lay_out_saved(client, paths, wanted)
        options = _options(paths, docker, names[len(wanted) :])
        env = {**os.environ, "DOCKER_HOST": docker.socket}
        try:
            tags = run_build(CHECKOUT, wanted, options, env=env, say=typer.echo)
        except BuildFailed as error:
            raise failed(f"Nothing new is offered: {error}.") from None
        for tag in tags:
            found = machine.named(tag)
            if found is None:
                raise HostError(f"{tag} is ready, but Docker does not know it.")
            _offer(client, machine, found, paths, environment=found.environment)


def lay_out_saved(client: Client, paths: Paths, names: list[str]) -> None:
    """For environments that are not in the checkout: what an operator approved, exactly that. What was
    approved once and is not any more, or was deleted since, is not built from what lies there still."""
    folder = paths.data / _SAVED
    others = [name for name in names if not (CHECKOUT / "images" / name / "environment.yaml").exists()]
    for name in (one for one in others if _SAVED_NAME.fullmatch(one)):
        try:
            saved = SavedView.model_validate(client.send("GET", f"saved/{quote(name, safe='')}"))
        except Refused as refusal:
            if refusal.code != UnknownEnvironment.code:
                raise
            drop_folder(folder, name)
            continue  # images/build says which there are
        if saved.state != "approved":
            drop_folder(folder, name)
            raise failed(f"No operator has approved the saved environment {name}: allot env approve {name}.")
        write_folder(folder, saved, images=CHECKOUT / "images")


def _options(paths: Paths, docker: DockerSettings, given: list[str]) -> list[str]:
    options = ["--tag-prefix", docker.image_prefix]
    if docker.variant != "auto":
        options += ["--variant", docker.variant]
    saved = paths.data / _SAVED
    if saved.is_dir():
        options += ["--more", str(saved)]
    # the last one wins
    return [*options, *given]


def _offer(
    client: Client, machine: MachineImages, found: FoundImage, paths: Paths, *, environment: str
) -> None:
    """Our own tag first: an image that is offered must not be pruned."""
    machine.keep(found, environment)
    base = _base(paths, environment)
    done = client.send("POST", "images", registration(found, environment=environment, base=base))
    name = f"{done['environment']} {done['version']} ({done['label']})"
    if done["state"] == "offered":
        typer.echo(f"{name} is offered from now on.")
    else:
        typer.echo(f"{name} can be chosen; another version is pinned, so that one stays offered.")


def _base(paths: Paths, environment: str) -> str | None:
    """For a saved environment: the one whose groups may use it."""
    if environment in load_catalog(paths.catalog).environments:
        return None
    for folder in (paths.data / _SAVED, CHECKOUT / "images"):
        described = folder / environment / "environment.yaml"
        if described.exists():
            return load_environment(described).base
    return None


def pull(
    reference: Annotated[
        str, typer.Argument(help="REGISTRY/NAME:TAG, or REGISTRY/NAME@sha256:…", metavar="REFERENCE")
    ],
    environment: Annotated[
        str | None, typer.Option(help="What it is offered as, if the image itself says something else.")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Bring an image from a registry and offer it; sessions can bring it again when it is not here."""
    paths = paths_of(data_dir)
    with polite(), broker(data_dir) as client, machine_of(data_dir) as machine:
        with Bars() as bars:
            try:
                found = machine.pull(reference, bars.show)
            except PullFailed as error:
                raise failed(f"{reference} was not brought here: {error}.") from None
        name = environment or found.environment
        if not name:
            raise failed(
                f"{reference} does not say which environment it is; say so with --environment, if it is a "
                "notebook image made for Allotment."
            )
        _offer(client, machine, found, paths, environment=name)


def warm(
    names: Annotated[
        list[str] | None, typer.Argument(help="Environments; else all that are offered.", metavar="NAME...")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Read what sessions will read, so that the first start of an image is as fast as the next ones."""
    with polite(), broker(data_dir) as client, machine_of(data_dir) as machine:
        offered = {
            one["environment"]: one for one in client.send("GET", "images") if one["state"] == "offered"
        }
        unknown = [name for name in names or () if name not in offered]
        if unknown:
            raise HostError(f"No image is offered of {', '.join(unknown)}; these are: {', '.join(offered)}.")
        for name in names or offered:
            _warm(machine, name, offered[name])


def _warm(machine: MachineImages, name: str, image: dict[str, Any]) -> None:
    found = machine.named(image["digest"])
    if found is None and image["source"]:
        with Bars() as bars:
            try:
                found = machine.pull(image["source"], bars.show)
            except PullFailed as error:
                raise failed(f"{name} was not brought here: {error}.") from None
        machine.keep(found, name)
    if found is None:
        raise failed(f"The image of {name} is not on this machine; build or pull it.")
    for line in machine.warm(found):
        typer.echo(f"{name}: {line}")
    typer.echo(f"{name} {image['version']} is warm")


class Bars:
    """A bar a layer and one for all; plain lines where there is no terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), DownloadColumn(), console=self._console
        )
        self._tasks: dict[str, TaskID] = {}
        self._said = -1

    def __enter__(self) -> Bars:
        """Nothing is drawn before the first byte."""
        if self._console.is_terminal:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._progress.stop()

    def show(self, progress: PullProgress) -> None:
        """Called at each event of the engine's."""
        if not self._console.is_terminal:
            self._say(progress)
            return
        self._bar("all layers", progress.got_bytes, progress.total_bytes)
        for name, layer in progress.layers.items():
            self._bar(f"{name} {layer.status.lower()}", layer.got_bytes, layer.total_bytes, key=name)

    def _bar(self, text: str, got: int, total: int | None, *, key: str = "") -> None:
        if key not in self._tasks:
            self._tasks[key] = self._progress.add_task(text)
        self._progress.update(self._tasks[key], description=text, completed=got, total=total)

    def _say(self, progress: PullProgress) -> None:
        """At each twentieth part."""
        total = progress.total_bytes
        part = 20 * progress.got_bytes // total if total else 0
        if part > self._said:
            self._said = part
            whole = "?" if total is None else in_bytes(total)
            self._console.print(f"{in_bytes(progress.got_bytes)} of {whole}")
