"""An image that is not on this machine any more is brought here at the start of a session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any, Final

from docker.errors import ImageNotFound

from allotment_spawner.core.errors import EngineUnavailable, EnvironmentUnavailable
from allotment_spawner.daemon_threads import DaemonThreads
from allotment_spawner.engines.docker_pull import PullFailed, PullProgress, pull_image
from allotment_spawner.launch.names import kept_tag
from allotment_spawner.spawners.docker_workload import DockerCall, docker_answers
from allotment_spawner.wire import Launch, Work

__all__ = ["Pulls"]

Tell = Callable[[Work], None]
_EVERY_S: Final = 0.25


class Pulls:
    """One download of an image for all who wait for it. It goes on when a start is cancelled: the next
    start wants it too. `client` makes a Docker client for one pull."""

    def __init__(self, *, client: Callable[[], Any], threads: DaemonThreads) -> None:
        self._client = client
        self._threads = threads
        self._running: dict[str, _Pull] = {}

    async def ensure(self, launch: Launch, *, docker: DockerCall, tell: Tell) -> None:
        """Return once the image of `launch` is here, telling what happens.

        Raises `EnvironmentUnavailable` when it cannot be had, or is not the one that was registered.
        """
        digest = launch.image_digest or ""
        if await _is_here(docker, digest):
            return
        if launch.pull is None:
            raise EnvironmentUnavailable(
                "The image of this environment is not on this machine any more.",
                "Choose another version or environment, or ask an operator to build it.",
            )
        await self._pull(launch.pull, tell)
        if not await _is_here(docker, digest):
            raise EnvironmentUnavailable(
                f"What {_registry(launch.pull)} gave is not the image that was registered here.",
                "Choose another version or environment, and tell an operator.",
            )
        with suppress(EngineUnavailable, ImageNotFound):
            # so that no pruning of the engine's takes it for useless
            async with docker_answers():
                repository, tag = kept_tag(launch.installation, launch.env["ALLOTMENT_ENVIRONMENT"], digest)
                await docker("tag", digest, repository, tag=tag)

    async def _pull(self, source: str, tell: Tell) -> None:
        pull = self._running.get(source)
        if pull is None:
            pull = self._running[source] = _Pull(source, client=self._client, threads=self._threads)
            pull.done.add_done_callback(lambda _: self._running.pop(source, None))
        with pull.heard_by(tell):
            try:
                await asyncio.shield(pull.done)
            except PullFailed as error:
                raise EnvironmentUnavailable(
                    "The image of this environment is not on this machine, and "
                    f"{_registry(source)} did not give it: {_short(error)}.",
                    "Try again in a few minutes or choose another environment; tell an operator if it stays.",
                ) from error


class _Pull:
    """A pull in its thread, and who is told of it (in the event loop)."""

    def __init__(self, source: str, *, client: Callable[[], Any], threads: DaemonThreads) -> None:
        self._loop = asyncio.get_running_loop()
        self._listeners: list[Tell] = []
        self._latest = Work(sentence=PullProgress().sentence)
        self._told_at = 0.0
        self.done = asyncio.ensure_future(threads.run(lambda: self._work(source, client)))
        # whoever waits is told; nobody may wait any more
        self.done.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _work(self, source: str, client: Callable[[], Any]) -> None:
        with closing(client()) as connection:
            pull_image(connection, source, self._hear)

    def _hear(self, progress: PullProgress) -> None:
        now = self._loop.time()
        if now - self._told_at < _EVERY_S:
            return
        self._told_at = now
        work = Work(
            sentence=f"{progress.sentence}.",
            got_bytes=progress.got_bytes,
            total_bytes=progress.total_bytes,
        )
        self._loop.call_soon_threadsafe(self._tell, work)

    def _tell(self, work: Work) -> None:
        self._latest = work
        for listener in self._listeners:
            listener(work)

    def heard_by(self, tell: Tell) -> _Hearing:
        return _Hearing(self._listeners, tell, self._latest)


class _Hearing:
    def __init__(self, listeners: list[Tell], tell: Tell, latest: Work) -> None:
        self._listeners, self._tell, self._latest = listeners, tell, latest

    def __enter__(self) -> None:
        self._tell(self._latest)
        self._listeners.append(self._tell)

    def __exit__(self, *_: object) -> None:
        self._listeners.remove(self._tell)


async def _is_here(docker: DockerCall, digest: str) -> bool:
    try:
        async with docker_answers():
            found = await docker("inspect_image", digest)
    except ImageNotFound:
        return False
    return bool(found["Id"] == digest)


def _registry(source: str) -> str:
    return source.partition("/")[0]


def _short(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0].strip().rstrip(".")[:200]
