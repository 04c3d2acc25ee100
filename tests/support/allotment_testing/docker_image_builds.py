"""Builds of images upon an engine of the tests' own, and what they hold."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

from allotment_testing.docker_daemon import DockerDaemon
from allotment_testing.docker_images import BASE_IMAGE, CA_BUNDLE, image_tag

__all__ = ["build", "forget", "pinned"]

ROOT = Path(__file__).resolve().parents[3]


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


def forget(builder: DockerDaemon, name: str) -> None:
    """The environment's images and what a build could take from an earlier one."""
    with contextlib.closing(builder.client(timeout_s=300)) as client:
        for tag in (image_tag(name), image_tag(f"{name}-packages")):
            client.remove_image(tag, force=True)
        client.prune_builds(all=True)
