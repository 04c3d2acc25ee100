"""Which environments this installation can offer, each with its image or the reason and remedy."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

from allotment_hub.catalog import Catalog
from allotment_hub.config_loading import load_environment
from allotment_hub.environment import Environment
from allotment_hub.images.describe import FoundImage
from allotment_hub.runtime import EnvironmentImage

__all__ = ["docker_environments", "local_environments", "read_descriptions"]


def read_descriptions(checkout: Path, catalog: Catalog) -> dict[str, Environment]:
    """images/NAME/environment.yaml of every environment in the catalogue; a missing one has its name only.

    Raises `ConfigError` for a file that is there and wrong.
    """
    found = {}
    for name in catalog.environments:
        path = checkout / "images" / name / "environment.yaml"
        found[name] = load_environment(path) if path.exists() else Environment(title=name)
    return found


def local_environments(descriptions: Mapping[str, Environment]) -> dict[str, EnvironmentImage]:
    """`minimal` is the installation's own environment; the others need Docker."""
    return {name: _local(name, description) for name, description in descriptions.items()}


def docker_environments(
    descriptions: Mapping[str, Environment], images: Mapping[str, FoundImage | None]
) -> dict[str, EnvironmentImage]:
    """Available are those whose image stands on this machine."""
    found = {}
    for name, description in descriptions.items():
        image = images.get(name)
        found[name] = EnvironmentImage(
            title=description.title,
            description=description.description,
            packages=dict(image.packages) if image else {},
            image=image.name if image else None,
            digest=image.digest if image else None,
            label=image.label if image else "",
            source=image.source if image else None,
            size_bytes=image.size_bytes if image else None,
            made_at=image.made_at if image else None,
            requires=dict(image.requires) if image else {},
            available=image is not None,
            reason=None
            if image
            else f"Its image is not on this machine: run `allot images build {name}`, as an operator.",
        )
    return found


def _local(name: str, description: Environment) -> EnvironmentImage:
    if name != "minimal":
        return EnvironmentImage(
            title=description.title,
            description=description.description,
            available=False,
            reason=(
                "It needs the Docker engine: run "
                f"`images/build {name}`, then `./deploy/down` and `./deploy/up --engine docker`."
            ),
        )
    return EnvironmentImage(
        title=description.title,
        description="JupyterLab and Python as installed on this machine",
        packages=_own_versions(description.packages),
        available=True,
    )


def _own_versions(names: Iterable[str]) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = platform.python_version() if name == "python" else metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
