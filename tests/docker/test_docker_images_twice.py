"""The same lock built twice from nothing, with a package index: `./tests/run full` alone has the minutes."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from allotment_testing.docker_daemon import DockerDaemon
from allotment_testing.docker_image_builds import build, forget, pinned
from allotment_testing.docker_images import clone_images, ensure_images

FULL = os.environ.get("ALLOTMENT_KILL_MATRIX") == "full"

if FULL:

    @pytest.fixture
    def builder(tmp_path: Path) -> Iterator[DockerDaemon]:
        """An engine with the built images and nothing of how they were built. In this machine's network: not
        beside another engine of the same module, whose private network would be this thread's, too."""
        ensure_images("minimal")
        # a name of its own: an engine's leftovers are found, and ended, by its folder's name
        daemon = DockerDaemon(clone_images(tmp_path / uuid.uuid4().hex[:8]), networking=False)
        daemon.start()
        yield daemon
        daemon.remove()

    def test_minimal_built_twice_holds_the_same_packages(builder: DockerDaemon, tmp_path: Path) -> None:
        """Debian's own packages move on between builds."""
        for number in ("0", "1"):
            result = build(builder, "minimal", "--sbom", str(tmp_path / number))
            assert result.returncode == 0, result.stderr[-3000:]
            forget(builder, "minimal")
        assert pinned(tmp_path / "0", "minimal") == pinned(tmp_path / "1", "minimal")
