"""More doors to one server: Notebook 7, terminals, git links, local web apps; open to its owner alone."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Iterator

import pytest
from allotment_testing.docker_daemon import wait_until
from allotment_testing.docker_image_bed import SERVE, STRANGER, ImageBed, image_bed
from allotment_testing.docker_testbed import running_docker

APP = "mkdir -p ~/app && echo from-the-app > ~/app/index.html && cd ~/app"
APP += " && (python3 -m http.server 6006 --bind 127.0.0.1 &) && cd && exec " + " ".join(SERVE)


@pytest.fixture(scope="module")
def bed() -> Iterator[ImageBed]:
    with running_docker("minimal") as daemon, image_bed(daemon, "minimal") as bed:
        yield bed


@pytest.fixture(scope="module")
def served(bed: ImageBed) -> str:
    """A session in which a web app listens on the container's loopback, as TensorBoard does."""
    ref = bed.start("doors", ["sh", "-c", APP])
    bed.answers(ref)
    return ref


@pytest.mark.parametrize(
    ("path", "sign"),
    [
        ("lab", "jupyter-config-data"),
        ("tree", "jupyter-config-data"),
        ("terminals/1", "jupyter-config-data"),
        ("git-pull?repo=https%3A%2F%2Fexample.org%2Frepo", "git-pull"),
        ("proxy/6006/", "from-the-app"),
        ("proxy/localhost:6006/", "from-the-app"),
    ],
)
def test_a_door_opens_to_its_owner_and_to_nobody_else(
    bed: ImageBed, served: str, path: str, sign: str
) -> None:
    assert sign in bed.ask(served, path)
    assert bed.status(served, path, token=STRANGER) == 403
    # a browser without a token is sent to sign in
    assert bed.status(served, path, token=None) in {302, 403}


def test_the_proxy_reaches_nothing_but_the_session_itself(bed: ImageBed, served: str) -> None:
    gateway = bed.bridge.gateway
    port = urllib.parse.urlsplit(bed.hub).port
    for path in (
        f"proxy/{gateway}:{port}/hub/api",
        "proxy/169.254.1.1:80/",
        f"proxy/absolute/{gateway}:{port}/",
    ):
        assert bed.status(served, path) == 403, path


def test_websockets_are_closed_to_others_too(bed: ImageBed, served: str) -> None:
    name = json.loads(bed.ask(served, "api/terminals", {}))["name"]
    terminal = f"terminals/websocket/{name}"
    assert bed.status(served, terminal, upgrade=True) == 101
    assert bed.status(served, terminal, upgrade=True, token=STRANGER) == 403
    assert bed.status(served, "proxy/6006/", upgrade=True, token=STRANGER) == 403


def test_a_terminal_is_a_shell_of_the_person(bed: ImageBed, served: str) -> None:
    json.loads(bed.ask(served, "api/terminals", {}))

    def there() -> bool:
        return "bash" in bed.inside(served, "ps", "-o", "comm=", "-u", "jovyan")[1]

    wait_until(there, limit_s=30, what="a shell of the terminal runs")
