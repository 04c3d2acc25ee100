"""The tests' engine also starts where paths are long: a home or a temporary folder deep in the tree."""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path

from allotment_testing.docker_daemon import DockerDaemon


def test_an_engine_starts_in_a_deep_folder_and_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 20) / uuid.uuid4().hex[:8]
    folder.mkdir(parents=True)
    daemon = DockerDaemon(folder, networking=False)
    try:
        daemon.start()
        with contextlib.closing(daemon.client()) as client:
            assert client.info()["DockerRootDir"] == str(folder / "data")
    finally:
        daemon.remove()
    assert not folder.exists()
    assert folder not in [link.readlink() for link in Path("/run").glob("allot-*")]
