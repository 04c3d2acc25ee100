"""Which engine runs the sessions: Docker where it answers, can be reached and has images, else local."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from allotment_hub.catalog import Catalog
from allotment_hub.host.docker_host import DockerHost, DockerProblem
from allotment_hub.host.environments import docker_environments, local_environments, read_descriptions
from allotment_hub.host.errors import HostError
from allotment_hub.host.options import UpOptions
from allotment_hub.images.describe import FoundImage
from allotment_hub.runtime import EnvironmentImage

__all__ = ["EngineChoice", "choose_engine"]


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """`inner_host` is the address at which workloads reach hub and broker."""

    engine: str
    inner_host: str
    environments: Mapping[str, EnvironmentImage]
    sentence: str
    request_devices: Literal["nvidia", "cdi", "env"] = "env"
    images_here: tuple[str, ...] | None = None


def choose_engine(
    options: UpOptions, catalog: Catalog, docker: DockerHost, *, checkout: Path
) -> EngineChoice:
    """`HostError` when the engine that was asked for cannot be used; auto falls back to local."""
    descriptions = read_descriptions(checkout, catalog)
    if options.engine != "local":
        try:
            images = docker.images(list(descriptions))
            image = _any_image(images)
            gateway = docker.bridge().gateway
            request = docker.request_devices(image.digest)
            here = docker.keep({name: found for name, found in images.items() if found is not None})
        except DockerProblem as problem:
            if options.engine == "docker":
                raise HostError(str(problem)) from None
            why = str(problem)
        else:
            return EngineChoice(
                engine="docker",
                inner_host=gateway,
                environments=docker_environments(descriptions, images),
                sentence=f"Sessions run in Docker ({', '.join(name for name in images if images[name])}).",
                request_devices=request,
                images_here=here,
            )
    else:
        why = ""
    if not options.loopback:
        raise HostError(
            f"{why} The local engine has no walls between people, so it cannot listen on {options.bind}."
        )
    return EngineChoice(
        engine="local",
        inner_host="127.0.0.1",
        environments=local_environments(descriptions),
        sentence=f"{why} Sessions run as plain processes of this account: for trying out.".strip(),
    )


def _any_image(images: Mapping[str, FoundImage | None]) -> FoundImage:
    for image in images.values():
        if image is not None:
            return image
    raise DockerProblem(f"Docker has none of the images yet; run images/build {' '.join(images)}.")
