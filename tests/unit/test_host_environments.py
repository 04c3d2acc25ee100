"""Why an environment cannot be had: each command in it can be read and copied as such."""

from __future__ import annotations

import re

from allotment_hub.environment import Environment
from allotment_hub.host.environments import docker_environments, local_environments

ASKED = {"pytorch": Environment(title="PyTorch")}


def commands(reason: str | None) -> list[str]:
    return re.findall(r"`([^`]+)`", reason or "")


def test_without_docker_the_way_to_it_is_named() -> None:
    [found] = local_environments(ASKED).values()
    assert not found.available
    assert commands(found.reason) == ["images/build pytorch", "./deploy/down", "./deploy/up --engine docker"]


def test_without_its_image_the_command_that_builds_it_is_named() -> None:
    [found] = docker_environments(ASKED, {"pytorch": None}).values()
    assert not found.available
    assert commands(found.reason) == ["allot images build pytorch"]
