"""Bringing a missing image at the start of a session: bytes told, one download for all, refusals."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from allotment_spawner.core.errors import EnvironmentUnavailable
from allotment_spawner.daemon_threads import DaemonThreads
from allotment_spawner.engines.docker_pull import PullFailed, PullProgress, in_bytes, pull_image
from allotment_spawner.spawners.pulling import Pulls
from allotment_spawner.wire import Launch, Work
from allotment_testing.engine_makers import a_launch
from docker.errors import ImageNotFound
from requests.exceptions import ReadTimeout

DIGEST = f"sha256:{'a' * 64}"
SOURCE = f"127.0.0.1:5000/minimal@sha256:{'b' * 64}"


def event(layer: str, status: str, current: int = 0, total: int = 0) -> dict[str, Any]:
    detail = {"current": current, "total": total} if total else {}
    return {"id": layer, "status": status, "progressDetail": detail}


EVENTS = [
    {"status": "Pulling from minimal", "id": "latest"},
    event("base", "Already exists"),
    event("big", "Pulling fs layer"),
    event("small", "Pulling fs layer"),
    event("big", "Downloading", 5_000_000, 20_000_000),
    event("small", "Download complete"),
    event("big", "Downloading", 20_000_000, 20_000_000),
    event("big", "Download complete"),
    event("big", "Extracting", 10_000_000, 20_000_000),
    event("big", "Pull complete"),
    event("small", "Pull complete"),
    {"status": "Digest: sha256:…"},
]


def test_bytes_are_added_up() -> None:
    progress = PullProgress()
    seen = []
    for one in EVENTS:
        progress.feed(one)
        seen.append((progress.got_bytes, progress.total_bytes, progress.sentence))
    assert seen[2] == (0, None, "Fetching the image")
    assert seen[4] == (5_000_000, None, "Fetching the image: 5.0 MB so far"), "a layer is still to be told"
    assert seen[5] == (5_000_000, 20_000_000, "Fetching the image: 25 %")
    assert seen[7] == (20_000_000, 20_000_000, "Unpacking the image: 1 of 3 layers")
    assert seen[-1] == (20_000_000, 20_000_000, "Unpacking the image: 3 of 3 layers")


def test_an_error_in_the_answer_is_a_failure() -> None:
    client = Mock()
    client.pull.return_value = iter([EVENTS[1], {"error": "manifest unknown"}])
    with pytest.raises(PullFailed, match="manifest unknown"):
        pull_image(client, SOURCE, lambda _: None)
    client.pull.side_effect = ReadTimeout("silence")
    with pytest.raises(PullFailed, match="silence"):
        pull_image(client, SOURCE, lambda _: None)


@pytest.mark.parametrize(("count", "text"), [(999, "999 bytes"), (1500, "1.5 kB"), (3_210_000_000, "3.2 GB")])
def test_sizes_are_readable(count: int, text: str) -> None:
    assert in_bytes(count) == text


class EngineWithRegistry:
    """An engine without the image until a pull is over; `go` lets the pull go on; `gives` is what comes."""

    def __init__(self) -> None:
        self.images: set[str] = set()
        self.tags: list[tuple[str, str]] = []
        self.pulls: list[str] = []
        self.go = threading.Event()
        self.gives: str | None = DIGEST
        self.error: str | None = None

    async def __call__(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        if method == "tag":
            self.tags.append((args[1], kwargs["tag"]))
            return None
        assert method == "inspect_image"
        if args[0] not in self.images:
            raise ImageNotFound(args[0])
        return {"Id": args[0]}

    def pull(self, reference: str, **_: Any) -> Iterator[dict[str, Any]]:
        self.pulls.append(reference)
        yield EVENTS[4]
        assert self.go.wait(10)
        if self.error:
            yield {"error": self.error}
        if self.gives:
            self.images.add(self.gives)
        yield EVENTS[9]

    def close(self) -> None:
        return None


def launch(pull: str | None = SOURCE) -> Launch:
    made = a_launch(installation="0123abcd", lease="l1", digest=DIGEST)
    env = {**made.env, "ALLOTMENT_ENVIRONMENT": "minimal"}
    return made.model_copy(update={"pull": pull, "env": env})


@pytest.fixture
def threads() -> DaemonThreads:
    return DaemonThreads(2, name="pull")


async def told(seen: list[Work]) -> None:
    async with asyncio.timeout(10):
        while not any(work.got_bytes for work in seen):  # noqa: ASYNC110 - told from a thread
            await asyncio.sleep(0.005)


async def test_one_download_serves_all_who_wait_and_each_is_told(threads: DaemonThreads) -> None:
    engine = EngineWithRegistry()
    pulls = Pulls(client=lambda: engine, threads=threads)
    ann: list[Work] = []
    ben: list[Work] = []
    first = asyncio.create_task(pulls.ensure(launch(), docker=engine, tell=ann.append))
    await told(ann)
    second = asyncio.create_task(pulls.ensure(launch(), docker=engine, tell=ben.append))
    await told(ben)
    assert ben[0] == ann[-1], "who comes later sees at once how far it is"
    engine.go.set()
    await asyncio.gather(first, second)
    assert engine.pulls == [SOURCE]
    assert engine.tags == [("allotment-0123abcd/minimal", "a" * 12)] * 2


async def test_a_cancelled_start_leaves_the_download_to_the_next(threads: DaemonThreads) -> None:
    engine = EngineWithRegistry()
    pulls = Pulls(client=lambda: engine, threads=threads)
    seen: list[Work] = []
    first = asyncio.create_task(pulls.ensure(launch(), docker=engine, tell=seen.append))
    await told(seen)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.create_task(pulls.ensure(launch(), docker=engine, tell=lambda _: None))
    await asyncio.sleep(0)
    engine.go.set()
    await second
    assert engine.pulls == [SOURCE]


async def test_what_is_here_is_not_fetched(threads: DaemonThreads) -> None:
    engine = EngineWithRegistry()
    engine.images.add(DIGEST)
    await Pulls(client=lambda: engine, threads=threads).ensure(launch(), docker=engine, tell=lambda _: None)
    assert engine.pulls == []


async def test_refusals_say_what_happened(threads: DaemonThreads) -> None:
    engine = EngineWithRegistry()
    engine.go.set()
    pulls = Pulls(client=lambda: engine, threads=threads)
    with pytest.raises(EnvironmentUnavailable, match="not on this machine any more"):
        await pulls.ensure(launch(None), docker=engine, tell=lambda _: None)
    engine.gives = f"sha256:{'c' * 64}"
    with pytest.raises(EnvironmentUnavailable, match=r"127\.0\.0\.1:5000 gave is not the image"):
        await pulls.ensure(launch(), docker=engine, tell=lambda _: None)
    engine.error = "connection refused\nmore"
    with pytest.raises(EnvironmentUnavailable, match=r"did not give it: connection refused\."):
        await pulls.ensure(launch(), docker=engine, tell=lambda _: None)
    engine.error, engine.gives = None, DIGEST
    await pulls.ensure(launch(), docker=engine, tell=lambda _: None)
