"""What an engine of the tests leaves when it was killed together with its run is found and ended."""

from __future__ import annotations

import contextlib
import os
import signal
import uuid
from pathlib import Path

import pytest
from allotment_testing.docker_daemon import DockerDaemon, wait_until
from allotment_testing.docker_images import clone_images, ensure_images, image_tag

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


def mentioning(word: str) -> list[str]:
    """Command lines and groups of this machine's processes that name it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                told = (entry / "cmdline").read_bytes() + (entry / "cgroup").read_bytes()
                if word.encode() in told:
                    found.append(told.decode(errors="replace"))
    return found


def test_a_killed_engine_and_its_containers_are_ended_by_who_comes_later(tmp_path: Path) -> None:
    ensure_images("minimal")
    folder = clone_images(tmp_path / uuid.uuid4().hex[:8])
    daemon = DockerDaemon(folder, networking=False)
    try:
        daemon.start()
        with contextlib.closing(daemon.client()) as client:
            made = client.create_container(image_tag("minimal"), ["sleep", "600"])
            client.start(made)
        assert daemon._containerd is not None
        for process in (daemon._process, daemon._containerd):
            assert process is not None
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert mentioning(daemon.name), "a shim goes on without its engine"
        DockerDaemon(folder).remove()
        wait_until(lambda: mentioning(daemon.name) == [], limit_s=20, what="all of it is gone")
        assert not folder.exists()
    finally:
        DockerDaemon(folder).remove()
