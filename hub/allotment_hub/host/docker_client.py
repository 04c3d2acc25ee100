"""A client of this machine's Docker for one piece of work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker
from docker.errors import DockerException

__all__ = ["docker_client"]

_UNIX = "unix://"


@contextmanager
def docker_client(
    base_url: str, *, timeout_s: float = 10.0, make: Callable[..., Any] = docker.APIClient
) -> Iterator[Any]:
    """Closed afterwards; raises `DockerException` or what requests raises when the engine does not answer.

    A socket that is not there is seen before docker-py is, which would leave one of its own open.
    """
    if base_url.startswith(_UNIX) and not Path(base_url.removeprefix(_UNIX)).exists():
        raise DockerException(f"No such file: {base_url}")
    client = make(base_url=base_url, timeout=timeout_s, version="auto")
    try:
        yield client
    finally:
        client.close()
