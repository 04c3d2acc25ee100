"""The images on this machine, through its engine: look, name, pull, warm, take away."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from allotment_spawner.engines.docker_pull import PullProgress, pull_image
from allotment_spawner.launch.names import is_kept_tag, kept_tag
from docker.errors import APIError, ImageNotFound, NotFound

from allotment_hub.images.describe import LABEL, FoundImage, described, names_of, plain

__all__ = ["BuildLayer", "MachineImage", "MachineImages", "StillUsed", "warm_command"]

# names of packages are not names of modules, and python itself is neither
_WARM: Final = """
import importlib, re, sys
from importlib.metadata import packages_distributions

def word(name):
    return re.sub("[-_.]+", "-", name).lower()

owned = packages_distributions()
wanted = sys.argv[1].split(",")
for package in sys.argv[2:]:
    brings = [one for one, owners in owned.items() if word(package) in map(word, owners)]
    modules = [one for one in brings if not one.startswith("_")]
    wanted += [one for one in modules if word(one) == word(package)] or modules
for module in wanted:
    try:
        importlib.import_module(module)
    except Exception as error:
        print(f"{module} could not be imported: {error}")
"""
_WARM_MODULES: Final = ("jupyterhub.singleuser", "jupyterlab.labapp", "ipykernel.kernelapp")
_WARM_LIMIT_S: Final = 300
_WARM_PIDS: Final = 4096


def warm_command(packages: Iterable[str]) -> list[str]:
    """Imports what a server and these packages need; prints a line for each module that has a fault."""
    return ["python3", "-c", _WARM, ",".join(_WARM_MODULES), *packages]


class StillUsed(Exception):
    """The engine says that a container uses the image."""


@dataclass(frozen=True, slots=True)
class MachineImage:
    """One image of ours or another installation's. `containers` use it, whether they run or not."""

    image: FoundImage
    tags: tuple[str, ...]
    containers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BuildLayer:
    """What images/build makes on its way: packages that images are finished upon. Without tags: left over."""

    digest: str
    tags: tuple[str, ...]
    size_bytes: int


class MachineImages:
    """Raises what docker-py raises. `installation` is whose tags are made and taken away."""

    def __init__(self, *, client: Any, installation: str) -> None:
        self._client = client
        self._installation = installation

    def all(self) -> list[MachineImage]:
        """Every image that says which environment it is; bases of builds are none of them."""
        found = {}
        for one in self._client.images(filters={"label": f"{LABEL}environment"}, all=False):
            with contextlib.suppress(ImageNotFound):
                found[str(one["Id"])] = self._client.inspect_image(one["Id"])
        users = self._users()
        return [
            MachineImage(
                image=described(one, name=next(iter(names_of(one)), digest)),
                tags=tuple(names_of(one)),
                containers=tuple(users.get(digest, ())),
            )
            for digest, one in found.items()
        ]

    def _users(self) -> Mapping[str, list[str]]:
        users: dict[str, list[str]] = {}
        for container in self._client.containers(all=True):
            name = str((container.get("Names") or [container["Id"]])[0]).removeprefix("/")
            users.setdefault(str(container["ImageID"]), []).append(name)
        return users

    def build_layers(self) -> list[BuildLayer]:
        """Images of our builds that are no environment; no session runs from one."""
        return [
            BuildLayer(str(one["Id"]), tuple(names_of(one)), int(one.get("Size") or 0))
            for one in self._client.images(filters={"label": f"{LABEL}recipe"}, all=False)
            if f"{LABEL}environment" not in (one.get("Labels") or {})
        ]

    def drop_layer(self, layer: BuildLayer) -> bool:
        """Whether it is gone; what an image shares with it stays."""
        try:
            for name in layer.tags or (layer.digest,):
                self._remove(name)
        except StillUsed:
            return False
        return True

    def named(self, reference: str) -> FoundImage | None:
        """The image of this tag or digest; None where there is none."""
        try:
            return described(self._client.inspect_image(reference), name=reference)
        except ImageNotFound:
            return None

    def keep(self, image: FoundImage, environment: str) -> None:
        """Give it this installation's own tag."""
        repository, tag = kept_tag(self._installation, environment, image.digest)
        self._client.tag(image.digest, repository, tag=tag)

    def pull(self, reference: str, tell: Callable[[PullProgress], None]) -> FoundImage:
        """Raises `PullFailed`, also when it is gone again at once."""
        pull_image(self._client, reference, tell)
        found = self.named(reference)
        if found is None:
            raise ImageNotFound(reference)
        return found

    def take_away(self, image: MachineImage, environment: str, reference: str) -> bool:
        """Remove our tag, its name and, where nothing else names it, the image. Whether it is gone.

        What another installation keeps loses our tag only. `StillUsed` when a container uses it; never by
        force.
        """
        digest = image.image.digest
        repository, tag = kept_tag(self._installation, environment, digest)
        ours = f"{repository}:{tag}"
        if ours in image.tags:
            self._remove(ours)
        left = self.tags_of(digest)
        if left is None:
            return True
        if any(is_kept_tag(name) for name in left):
            return False
        if reference in left:
            self._remove(reference)
            left = self.tags_of(digest)
        if left:
            return False
        if left is not None:
            self._remove(digest)
        return self.tags_of(digest) is None

    def _remove(self, name: str) -> None:
        try:
            self._client.remove_image(name, force=False)
        except ImageNotFound:
            return
        except APIError as error:
            if error.status_code == HTTPStatus.CONFLICT:
                raise StillUsed(str(error.explanation)) from error
            raise

    def tags_of(self, digest: str) -> tuple[str, ...] | None:
        """None: there is no such image here."""
        try:
            return tuple(names_of(self._client.inspect_image(digest)))
        except ImageNotFound:
            return None

    def warm(self, image: FoundImage) -> Sequence[str]:
        """Start a container of it once and remove it, so that what a session reads is in memory.

        No network, nothing of anybody's; its name is always the same, so that one which a killed run left
        is taken away by the next. Returns what could not be imported.
        """
        name = f"allotment-warm-{self._installation}"
        self._drop(name)
        made = self._client.create_container(
            image.digest,
            command=warm_command(image.packages),
            name=name,
            host_config=self._client.create_host_config(
                network_mode="none",
                cap_drop=["ALL"],
                security_opt=["no-new-privileges:true"],
                init=True,
                pids_limit=_WARM_PIDS,
                log_config={"type": "json-file", "config": {"max-size": "1m", "max-file": "1"}},
            ),
        )
        try:
            self._client.start(made["Id"])
            self._client.wait(made["Id"], timeout=_WARM_LIMIT_S)
            told: bytes = self._client.logs(made["Id"], tail=50)
        finally:
            self._drop(name)
        return [plain(line) for line in told.decode(errors="replace").splitlines()]

    def _drop(self, name: str) -> None:
        with contextlib.suppress(NotFound):
            self._client.remove_container(name, force=True, v=True)
