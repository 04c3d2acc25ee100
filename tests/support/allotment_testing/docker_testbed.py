"""A dockerd with the built images in a network of its own, for the length of a with block."""

from __future__ import annotations

import contextlib
import fcntl
import uuid
from collections.abc import Iterator
from pathlib import Path

from allotment_testing.docker_daemon import DockerDaemon
from allotment_testing.docker_images import cache_folder, clone_images, ensure_images
from allotment_testing.docker_netns import private_network

__all__ = ["running_docker"]


@contextlib.contextmanager
def running_docker(
    *environments: str,
    live_restore: bool = False,
    nvidia: bool = True,
    tcp_port: int | None = None,
    own_network: bool = True,
) -> Iterator[DockerDaemon]:
    """Images of `environments` (and debian:bookworm-slim) are there; root only; 3 s once they are built.

    Inside, this thread and all that it starts are in a private network together with dockerd: bridge
    gateways are addresses of "this host", and nothing reaches the outside. Afterwards the thread is
    back in its old network and no container, mount or folder is left.
    """
    ensure_images(*(environments or ("minimal",)))
    runs = cache_folder() / "run"
    runs.mkdir(exist_ok=True)
    _sweep(runs)
    folder = runs / uuid.uuid4().hex[:8]
    folder.mkdir()
    with (folder / "in-use").open("w") as mark, contextlib.ExitStack() as stack:
        fcntl.flock(mark, fcntl.LOCK_EX)
        clone_images(folder)
        if own_network:
            stack.enter_context(private_network())
        daemon = DockerDaemon(folder, live_restore=live_restore, nvidia=nvidia, tcp_port=tcp_port)
        stack.callback(daemon.remove)
        daemon.start()
        yield daemon


def _sweep(runs: Path) -> None:
    """Remove what killed test runs left: their folders' marks are no longer held."""
    for mark in runs.glob("*/in-use"):
        with contextlib.suppress(OSError), mark.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            DockerDaemon(mark.parent).remove()
