"""One engine of the tests' own and one installation on it for each module that asks for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from allotment_testing.docker_daemon import DockerDaemon
from allotment_testing.docker_testbed import running_docker
from allotment_testing.installation import Installation
from allotment_testing.workloads import Containers, docker_installation


@pytest.fixture(scope="module")
def daemon(request: pytest.FixtureRequest) -> Iterator[DockerDaemon]:
    """With the images of the module's ENVIRONMENTS; minimal where it names none."""
    with running_docker(*getattr(request.module, "ENVIRONMENTS", ("minimal",))) as running:
        yield running


@pytest.fixture(scope="module")
def engine(daemon: DockerDaemon) -> Iterator[Any]:
    with contextlib.closing(daemon.client()) as client:
        yield client


@pytest.fixture(scope="module")
def installation(daemon: DockerDaemon) -> Iterator[Installation]:
    with docker_installation(daemon) as made:
        yield made


@pytest.fixture(scope="module")
def containers(engine: Any, installation: Installation) -> Containers:
    return Containers(client=engine, installation=installation)
