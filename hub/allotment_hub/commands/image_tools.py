"""What the `allot images` commands share: the installation's engine, and a polite end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from allotment.console import fail
from allotment.errors import AllotmentError
from allotment_spawner.engines.docker_pull import PatientClient
from docker.errors import DockerException
from requests.exceptions import RequestException

from allotment_hub.commands.installation import paths_of, runtime_of, site_of
from allotment_hub.host.docker_client import docker_client
from allotment_hub.host.errors import HostError
from allotment_hub.images.machine import MachineImages

__all__ = ["failed", "machine_of"]

_LIMIT_S = 330.0


def failed(sentence: str) -> typer.Exit:
    """Print the sentence; raise what this returns."""
    return fail(AllotmentError(sentence, ""))


@contextmanager
def machine_of(data_dir: Path | None) -> Iterator[MachineImages]:
    """The images of this installation's Docker. `HostError` without Docker, or where it is silent."""
    paths = paths_of(data_dir)
    runtime = runtime_of(paths)
    if runtime.engine != "docker":
        raise HostError(
            "Sessions of this installation run without images. `images/build NAME` makes one for Docker;"
            " then ./deploy/down, and ./deploy/up --engine docker."
        )
    try:
        with docker_client(site_of(paths).docker.socket, timeout_s=_LIMIT_S, make=PatientClient) as client:
            yield MachineImages(client=client, installation=runtime.installation)
    except (DockerException, RequestException) as error:
        raise HostError(f"Docker does not do what it is asked for: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
