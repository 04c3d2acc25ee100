"""One session on Docker; each module brings its own daemon and installation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from allotment_testing.docker_daemon import DockerDaemon
from allotment_testing.installation import Installation
from allotment_testing.recovery_checks import Session
from allotment_testing.workloads import Containers


@pytest.fixture(scope="module")
def containers(daemon: DockerDaemon, installation: Installation) -> Iterator[Containers]:
    with contextlib.closing(daemon.client()) as client:
        yield Containers(client=client, installation=installation)


@pytest.fixture
def session(installation: Installation, containers: Containers) -> Iterator[Session]:
    made = Session(installation=installation, workloads=containers)
    yield made
    made.stop()
