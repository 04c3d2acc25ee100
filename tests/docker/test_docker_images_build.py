"""images/build on a real engine: nothing to do makes nothing new; folders elsewhere join; the same again."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from allotment_testing.docker_daemon import DockerDaemon
from allotment_testing.docker_images import BASE_IMAGE, CA_BUNDLE, clone_images, image_tag
from allotment_testing.docker_testbed import running_docker

ROOT = Path(__file__).resolve().parents[2]
AGAIN = ("ours", "minimal") if os.environ.get("ALLOTMENT_KILL_MATRIX") == "full" else ("ours",)
"""Built from nothing a second time; minimal needs a package index and a minute."""


@pytest.fixture(scope="module")
def daemon() -> Iterator[DockerDaemon]:
    with running_docker("minimal") as daemon:
        yield daemon


@pytest.fixture(scope="module")
def client(daemon: DockerDaemon) -> Iterator[Any]:
    client = daemon.client(timeout_s=300)
    yield client
    client.close()


def build(daemon: DockerDaemon, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(ROOT / "images" / "build"), *arguments, "--variant", "cpu", "--no-audit"]
    argv += ["--base", BASE_IMAGE, "--network", "host"]
    if CA_BUNDLE.exists():
        argv += ["--ca-bundle", str(CA_BUNDLE)]
    environment = {**os.environ, "DOCKER_HOST": daemon.base_url}
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=900)


def pinned(folder: Path, name: str) -> set[tuple[str, str, str]]:
    """(name, version, sha256) of the image's Python packages, from the list that was copied out."""
    bill = json.loads((folder / f"{name}-cpu.cdx.json").read_text())
    return {
        (one["name"], one["version"], one.get("hashes", [{}])[0].get("content", ""))
        for one in bill["components"]
        if one["purl"].startswith("pkg:pypi/")
    }


def test_a_second_build_makes_no_new_image(daemon: DockerDaemon, client: Any, tmp_path: Path) -> None:
    """Else every build would be a new version to those who use it."""
    before = client.inspect_image(image_tag("minimal"))["Id"]
    result = build(daemon, "minimal", "--sbom", str(tmp_path))
    assert result.returncode == 0, result.stderr[-3000:]
    assert "allotment/minimal:" in result.stdout
    assert client.inspect_image(image_tag("minimal"))["Id"] == before
    assert any(name == "jupyterlab" for name, _, _ in pinned(tmp_path, "minimal"))
    assert (tmp_path / "minimal-cpu.licences.csv").read_text().startswith("kind,package,version,licence\n")


def tiny_wheel(folder: Path) -> None:
    """A package of one line, made here."""
    folder.mkdir()
    with zipfile.ZipFile(folder / "tinypackage-1.5-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tinypackage.py", "answer = 42\n")
        told = "tinypackage-1.5.dist-info"
        wheel.writestr(f"{told}/METADATA", "Metadata-Version: 2.1\nName: tinypackage\nVersion: 1.5\n")
        wheel.writestr(f"{told}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        rows = ["tinypackage.py,,", f"{told}/METADATA,,", f"{told}/WHEEL,,", f"{told}/RECORD,,"]
        wheel.writestr(f"{told}/RECORD", "".join(f"{row}\n" for row in rows))


def saved(folder: Path, lock: str) -> None:
    """An environment upon minimal that needs neither a Dockerfile nor a smoke test."""
    folder.mkdir(parents=True)
    (folder / "environment.yaml").write_text("title: Ours\nbase: minimal\npackages: [tinypackage]\n")
    (folder / "cpu.lock").write_text(lock)


def test_an_environment_outside_the_checkout_is_built(
    daemon: DockerDaemon, client: Any, tmp_path: Path
) -> None:
    saved(tmp_path / "more" / "ours", "tinypackage==1.5\n")
    tiny_wheel(tmp_path / "wheels")
    result = build(daemon, "ours", "--more", str(tmp_path / "more"), "--wheels", str(tmp_path / "wheels"))
    assert result.returncode == 0, result.stderr[-3000:]
    told = client.inspect_image(image_tag("ours"))["Config"]
    assert json.loads(told["Labels"]["org.allotment.packages"])["tinypackage"] == "1.5"
    assert told["Labels"]["org.allotment.environment"] == "ours"
    assert told["User"] == "1000:100"


def test_what_cannot_be_installed_is_told_and_leaves_no_image(
    daemon: DockerDaemon, client: Any, tmp_path: Path
) -> None:
    saved(tmp_path / "more" / "broken", "tinypackage==9.9\n")
    tiny_wheel(tmp_path / "wheels")
    result = build(daemon, "broken", "--more", str(tmp_path / "more"), "--wheels", str(tmp_path / "wheels"))
    assert result.returncode == 2
    assert "images/build: " in result.stderr
    assert "tinypackage==9.9" in result.stderr
    assert client.images(image_tag("broken")) == []


def test_an_unknown_name_is_one_sentence(daemon: DockerDaemon) -> None:
    result = build(daemon, "nothing")
    assert (result.returncode, result.stdout) == (2, "")
    assert "There is no environment 'nothing'" in result.stderr


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[DockerDaemon]:
    """An engine with the built images and nothing of how they were built, in this machine's network."""
    # a name of its own: an engine's leftovers are found, and ended, by its folder's name
    daemon = DockerDaemon(clone_images(tmp_path / uuid.uuid4().hex[:8]), networking=False)
    daemon.start()
    yield daemon
    daemon.remove()


@pytest.mark.parametrize("name", AGAIN)
def test_the_same_lock_gives_the_same_packages(builder: DockerDaemon, tmp_path: Path, name: str) -> None:
    saved(tmp_path / "more" / "ours", "tinypackage==1.5\n")
    tiny_wheel(tmp_path / "wheels")
    options = ["--more", str(tmp_path / "more"), "--wheels", str(tmp_path / "wheels")]
    lists = []
    for number in range(2):
        out = tmp_path / str(number)
        result = build(builder, name, *options, "--sbom", str(out))
        assert result.returncode == 0, result.stderr[-3000:]
        lists.append((out / f"{name}-cpu.cdx.json").read_bytes())
        forget(builder, name)
    assert pinned(tmp_path / "0", name) == pinned(tmp_path / "1", name)
    # Debian's packages move on between builds; where nothing is fetched, the lists are equal to the byte
    assert name == "minimal" or lists[0] == lists[1]


def forget(builder: DockerDaemon, name: str) -> None:
    """The environment's images and what a build could take from an earlier one."""
    with contextlib.closing(builder.client(timeout_s=300)) as client:
        for tag in (image_tag(name), image_tag(f"{name}-packages")):
            client.remove_image(tag, force=True)
        client.prune_builds(all=True)
