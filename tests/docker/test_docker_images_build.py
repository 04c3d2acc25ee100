"""images/build on a real engine: nothing to do makes nothing new; folders elsewhere join; the same again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from allotment_testing.docker_daemon import DockerDaemon
from allotment_testing.docker_image_builds import build, forget, pinned
from allotment_testing.docker_images import image_tag
from allotment_testing.docker_testbed import running_docker
from allotment_testing.tiny_wheels import tiny_wheel


@pytest.fixture(scope="module")
def daemon() -> Iterator[DockerDaemon]:
    with running_docker("minimal") as daemon:
        yield daemon


@pytest.fixture(scope="module")
def client(daemon: DockerDaemon) -> Iterator[Any]:
    client = daemon.client(timeout_s=300)
    yield client
    client.close()


def test_a_second_build_makes_no_new_image(daemon: DockerDaemon, client: Any, tmp_path: Path) -> None:
    """Else every build would be a new version to those who use it."""
    before = client.inspect_image(image_tag("minimal"))["Id"]
    result = build(daemon, "minimal", "--sbom", str(tmp_path))
    assert result.returncode == 0, result.stderr[-3000:]
    assert "allotment/minimal:" in result.stdout
    assert client.inspect_image(image_tag("minimal"))["Id"] == before
    assert any(name == "jupyterlab" for name, _, _ in pinned(tmp_path, "minimal"))
    assert (tmp_path / "minimal-cpu.licences.csv").read_text().startswith("kind,package,version,licence\n")


def saved(folder: Path, lock: str) -> None:
    """An environment upon minimal that needs neither a Dockerfile nor a smoke test."""
    folder.mkdir(parents=True)
    (folder / "environment.yaml").write_text("title: Ours\nbase: minimal\npackages: [tinypackage]\n")
    (folder / "cpu.lock").write_text(lock)


@dataclass(frozen=True)
class Ours:
    """An environment outside the checkout, built once; `options` build it again."""

    options: tuple[str, ...]
    bills: Path


@pytest.fixture(scope="module")
def ours(daemon: DockerDaemon, tmp_path_factory: pytest.TempPathFactory) -> Ours:
    folder = tmp_path_factory.mktemp("ours")
    saved(folder / "more" / "ours", "tinypackage==1.5\n")
    (folder / "wheels").mkdir()
    tiny_wheel(folder / "wheels", "tinypackage", "1.5")
    options = ("--more", str(folder / "more"), "--wheels", str(folder / "wheels"))
    result = build(daemon, "ours", *options, "--sbom", str(folder))
    assert result.returncode == 0, result.stderr[-3000:]
    return Ours(options, folder)


def test_an_environment_outside_the_checkout_is_built(client: Any, ours: Ours) -> None:
    told = client.inspect_image(image_tag("ours"))["Config"]
    assert json.loads(told["Labels"]["org.allotment.packages"])["tinypackage"] == "1.5"
    assert told["Labels"]["org.allotment.environment"] == "ours"
    assert told["User"] == "1000:100"
    assert ("tinypackage", "1.5", "") in pinned(ours.bills, "ours")


def test_the_same_lock_gives_the_same_packages(daemon: DockerDaemon, ours: Ours, tmp_path: Path) -> None:
    """Built from nothing a second time; where nothing is fetched, the lists are equal to the byte."""
    forget(daemon, "ours")
    result = build(daemon, "ours", *ours.options, "--sbom", str(tmp_path))
    assert result.returncode == 0, result.stderr[-3000:]
    first, second = (folder / "ours-cpu.cdx.json" for folder in (ours.bills, tmp_path))
    assert first.read_bytes() == second.read_bytes()


def test_what_cannot_be_installed_is_told_and_leaves_no_image(
    daemon: DockerDaemon, client: Any, tmp_path: Path
) -> None:
    saved(tmp_path / "more" / "broken", "tinypackage==9.9\n")
    tiny_wheel(tmp_path, "tinypackage", "1.5")
    result = build(daemon, "broken", "--more", str(tmp_path / "more"), "--wheels", str(tmp_path))
    assert result.returncode == 2
    assert "images/build: " in result.stderr
    assert "tinypackage==9.9" in result.stderr
    assert client.images(image_tag("broken")) == []


def test_an_unknown_name_is_one_sentence(daemon: DockerDaemon) -> None:
    result = build(daemon, "nothing")
    assert (result.returncode, result.stdout) == (2, "")
    assert "There is no environment 'nothing'" in result.stderr
