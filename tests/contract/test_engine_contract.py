"""Every engine keeps the same promises to the broker."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import pytest
from allotment_spawner.core.errors import EngineUnavailable
from allotment_spawner.engines.base import Engine, Workload
from allotment_testing.docker_images import BASE_IMAGE
from allotment_testing.docker_testbed import running_docker
from allotment_testing.engine_makers import DockerMaker, LocalMaker, Maker

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

SLEEP = ["sleep", "600"]
STUBBORN = ["/bin/sh", "-c", "trap '' TERM; while :; do sleep 1; done"]


@pytest.fixture(scope="module", params=["local", "docker"])
def platform(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Maker]:
    if request.param == "local":
        yield LocalMaker(tmp_path_factory.mktemp("local"))
        return
    with running_docker() as daemon, contextlib.closing(daemon.client()) as client:
        yield DockerMaker(daemon.base_url, client, BASE_IMAGE)


@pytest.fixture
def maker(platform: Maker) -> Iterator[Maker]:
    yield platform
    platform.clean()


@pytest.fixture
def ours() -> str:
    return uuid.uuid4().hex[:8]


async def until(
    engine: Engine, condition: Callable[[Sequence[Workload]], bool], limit_s: float = 15
) -> Sequence[Workload]:
    end = time.monotonic() + limit_s
    while True:
        seen = await engine.observe()
        if condition(seen):
            return seen
        assert time.monotonic() < end, f"still {seen}"
        await asyncio.sleep(0.05)


async def test_an_empty_engine_answers_with_nothing(maker: Maker, ours: str) -> None:
    engine = maker.engine(ours)
    await engine.check()
    assert list(await engine.observe()) == []


async def test_made_but_not_started_is_seen_with_all_it_was_made_with(maker: Maker, ours: str) -> None:
    ref = maker.create(ours, "lease-1", SLEEP, devices=["MIG-1", "MIG-2"])
    [seen] = await until(maker.engine(ours), lambda found: len(found) == 1)
    assert (seen.engine_ref, seen.installation, seen.lease) == (ref, ours, "lease-1")
    assert (seen.user, seen.server, seen.devices) == ("ada", "lab", ("MIG-1", "MIG-2"))
    assert (seen.state, seen.exit_code) == ("created", None)


async def test_running_is_seen_with_its_pids(maker: Maker, ours: str) -> None:
    ref = maker.create(ours, "lease-1", SLEEP)
    maker.start(ref)
    [seen] = await until(maker.engine(ours), lambda found: [one.state for one in found] == ["running"])
    commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in seen.pids]
    assert any(b"sleep\x00600" in command for command in commands)


async def test_one_that_ended_by_itself_is_not_running(maker: Maker, ours: str) -> None:
    ref = maker.create(ours, "lease-1", ["/bin/sh", "-c", "exit 3"])
    maker.start(ref)
    seen = await until(maker.engine(ours), lambda found: all(one.state == "exited" for one in found))
    assert [one.exit_code for one in seen] in ([], [3])


@pytest.mark.parametrize("started", [True, False])
async def test_stop_removes_and_may_be_repeated(maker: Maker, ours: str, started: bool) -> None:
    ref = maker.create(ours, "lease-1", SLEEP)
    if started:
        maker.start(ref)
    engine = maker.engine(ours)
    await until(engine, lambda found: [one.state for one in found] == ["running" if started else "created"])
    await engine.stop(ref, grace_s=5)
    assert list(await engine.observe()) == []
    await engine.stop(ref, grace_s=5)
    await maker.engine(ours).stop("never-made", grace_s=5)


async def test_stop_kills_what_ignores_the_signal(maker: Maker, ours: str) -> None:
    ref = maker.create(ours, "lease-1", STUBBORN)
    maker.start(ref)
    engine = maker.engine(ours)
    await until(engine, lambda found: bool(found) and found[0].state == "running")
    await engine.stop(ref, grace_s=1)
    assert not maker.running(ref)
    assert list(await engine.observe()) == []


async def test_two_stops_at_once_are_one(maker: Maker, ours: str) -> None:
    ref = maker.create(ours, "lease-1", STUBBORN)
    maker.start(ref)
    engine = maker.engine(ours)
    await until(engine, lambda found: bool(found) and found[0].state == "running")
    await asyncio.gather(engine.stop(ref, grace_s=1), engine.stop(ref, grace_s=1))
    assert list(await engine.observe()) == []


async def test_another_installation_is_neither_seen_nor_touched(maker: Maker, ours: str) -> None:
    theirs = uuid.uuid4().hex[:8]
    mine, other = maker.create(ours, "lease-1", SLEEP), maker.create(theirs, "lease-2", SLEEP)
    maker.start(mine)
    maker.start(other)
    engine = maker.engine(ours)
    seen = await until(engine, lambda found: len(found) == 1)
    assert [one.lease for one in seen] == ["lease-1"]
    with contextlib.suppress(EngineUnavailable):
        await engine.stop(other, grace_s=1)
    assert maker.running(other)
    assert [one.lease for one in await maker.engine(theirs).observe()] == ["lease-2"]


async def test_a_new_engine_finds_what_an_earlier_one_saw(maker: Maker, ours: str) -> None:
    ref = maker.create(ours, "lease-1", SLEEP)
    maker.start(ref)
    before = await until(maker.engine(ours), lambda found: bool(found) and found[0].state == "running")
    again = await until(maker.engine(ours), lambda found: bool(found) and found[0].state == "running")
    assert [one.engine_ref for one in again] == [one.engine_ref for one in before]
    await maker.engine(ours).stop(ref, grace_s=5)
    assert not maker.running(ref)


@pytest.mark.parametrize(
    "ask",
    [
        lambda engine: engine.check(),
        lambda engine: engine.observe(),
        lambda engine: engine.stop("allotment-x-lease-1", grace_s=1),
    ],
)
async def test_an_engine_that_does_not_answer_is_unknown_not_gone(
    maker: Maker, ours: str, ask: Callable[[Engine], Awaitable[object]]
) -> None:
    with pytest.raises(EngineUnavailable) as caught:
        await ask(maker.broken_engine(ours))
    assert caught.value.sentence.endswith(".")
    assert caught.value.next_step.endswith(".")
