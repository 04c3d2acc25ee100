"""Every engine's sampler keeps the same promises, on real processes and real containers."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import pytest
from allotment_spawner.core.errors import EngineUnavailable
from allotment_spawner.core.samples import WorkloadSample
from allotment_spawner.engines.base import Sampler, Workload
from allotment_spawner.engines.cgroups import Cgroups
from allotment_spawner.engines.docker_samples import DockerSampler
from allotment_spawner.engines.local_samples import LocalSampler
from allotment_testing.docker_images import BASE_IMAGE
from allotment_testing.docker_testbed import running_docker
from allotment_testing.engine_makers import DockerMaker, LocalMaker, Maker

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

MIB = 2**20
SLEEP = ["sleep", "600"]
BUSY = ["/usr/bin/perl", "-e", "1 while 1"]
HOLDS_64_MIB = ["/usr/bin/perl", "-e", f"$x = 'a' x {64 * MIB}; sleep 600"]
WRITES_FOR_GOOD = "while :; do dd if=/dev/zero of=f bs=1M count=4 conv=fsync; done 2>&-"
FORKS = ["/bin/sh", "-c", "while :; do perl -e 'for (1..200000) {}'; done"]
Way = Literal["local", "docker files", "docker answers"]


@pytest.fixture(scope="module")
def docker_maker() -> Iterator[DockerMaker]:
    with running_docker() as daemon, contextlib.closing(daemon.client()) as client:
        yield DockerMaker(daemon.base_url, client, BASE_IMAGE)


@pytest.fixture(params=["local", "docker files", "docker answers"])
def way(request: pytest.FixtureRequest) -> Way:
    chosen: Way = request.param
    return chosen


@pytest.fixture
def maker(way: Way, docker_maker: DockerMaker, tmp_path: Path) -> Iterator[Maker]:
    made: Maker = LocalMaker(tmp_path) if way == "local" else docker_maker
    yield made
    made.clean()


@pytest.fixture
def sampler(way: Way, docker_maker: DockerMaker, tmp_path: Path) -> Iterator[LocalSampler | DockerSampler]:
    if way == "local":
        made: LocalSampler | DockerSampler = LocalSampler()
    elif way == "docker files":
        # whoever asks Docker all the same finds nobody
        made = DockerSampler(base_url="unix:///no/such/docker.sock")
    else:
        unseen = Cgroups(proc=tmp_path / "no-proc", root=tmp_path / "no-cgroups")
        made = DockerSampler(base_url=docker_maker.base_url, cgroups=unseen)
    yield made
    made.close()


@pytest.fixture
def ours() -> str:
    return uuid.uuid4().hex[:8]


async def running(maker: Maker, ours: str, argv: Sequence[str], lease: str = "lease-1") -> list[Workload]:
    maker.start(maker.create(ours, lease, argv))
    engine, end = maker.engine(ours), time.monotonic() + 15
    while True:
        seen = [one for one in await engine.observe() if one.state == "running" and one.pids]
        if any(one.lease == lease for one in seen):
            return seen
        assert time.monotonic() < end, f"still {seen}"
        await asyncio.sleep(0.05)


async def sampled(
    sampler: Sampler, workloads: Sequence[Workload], enough: Callable[[WorkloadSample], bool]
) -> WorkloadSample:
    end = time.monotonic() + 15
    while True:
        found = (await sampler.sample(workloads)).get("lease-1")
        if found is not None and enough(found):
            return found
        assert time.monotonic() < end, f"still {found}"
        await asyncio.sleep(0.05)


def has_used(cpu_s: float, found: WorkloadSample) -> bool:
    return found.cpu_s is not None and found.cpu_s >= cpu_s


async def test_cpu_time_grows_with_work_and_not_without(sampler: Sampler, maker: Maker, ours: str) -> None:
    await running(maker, ours, SLEEP, lease="lease-2")
    both = await running(maker, ours, BUSY)
    first = await sampled(sampler, both, lambda one: one.cpu_s is not None)
    await sampled(sampler, both, lambda one: (one.cpu_s or 0) > (first.cpu_s or 0) + 0.2)
    found = await sampler.sample(both)
    assert found["lease-2"].cpu_s is not None
    assert found["lease-2"].cpu_s < 0.15


async def test_memory_is_what_was_taken(sampler: Sampler, maker: Maker, ours: str) -> None:
    seen = await running(maker, ours, HOLDS_64_MIB)
    found = await sampled(sampler, seen, lambda one: (one.memory_used_bytes or 0) >= 64 * MIB)
    assert found.memory_used_bytes is not None
    assert found.memory_used_bytes < 200 * MIB


async def test_limits_and_network_are_a_containers_or_unknown(
    sampler: Sampler, maker: Maker, ours: str, way: Way
) -> None:
    found = await sampled(sampler, await running(maker, ours, SLEEP), lambda _: True)
    if way == "local":
        assert (found.memory_limit_bytes, found.network_rx_bytes, found.network_tx_bytes) == (
            None,
            None,
            None,
        )
    else:
        assert found.memory_limit_bytes == 512 * MIB
        assert (found.network_rx_bytes or 0) >= 0
        assert None not in (found.network_rx_bytes, found.network_tx_bytes)


async def test_written_bytes_grow_or_are_unknown(
    sampler: Sampler, maker: Maker, ours: str, way: Way, tmp_path: Path
) -> None:
    seen = await running(maker, ours, ["/bin/sh", "-c", f"cd {tmp_path} || cd /tmp; {WRITES_FOR_GOOD}"])
    first = await sampled(sampler, seen, lambda one: (one.cpu_s or 0) > 0.2)
    later = await sampled(sampler, seen, lambda one: (one.cpu_s or 0) > (first.cpu_s or 0) + 0.2)
    if first.disk_write_bytes is None:
        assert way != "local"  # control groups of version 1 need not count; nothing may say 0 then
        assert later.disk_write_bytes is None
    else:
        assert (later.disk_write_bytes or 0) >= first.disk_write_bytes + MIB


async def test_children_that_ended_still_count(sampler: Sampler, maker: Maker, ours: str) -> None:
    seen = await running(maker, ours, FORKS)
    last = 0.0
    for _ in range(10):
        found = await sampled(sampler, seen, partial(has_used, last))
        last = found.cpu_s or 0.0
    await sampled(sampler, seen, partial(has_used, last + 0.1))


async def test_processes_are_those_that_the_engine_saw(sampler: Sampler, maker: Maker, ours: str) -> None:
    seen = await running(maker, ours, ["/bin/sh", "-c", "sleep 600 & sleep 600 & wait"])
    engine, end = maker.engine(ours), time.monotonic() + 15
    while len(seen[0].pids) < 3:
        assert time.monotonic() < end
        seen = list(await engine.observe())
    found = await sampled(sampler, seen, lambda _: True)
    assert found.processes == len(seen[0].pids)


async def test_one_that_is_gone_is_left_out_and_the_rest_is_told(
    sampler: Sampler, maker: Maker, ours: str
) -> None:
    await running(maker, ours, SLEEP, lease="lease-2")
    both = await running(maker, ours, SLEEP)
    await sampler.sample(both)
    await maker.engine(ours).stop(next(one.engine_ref for one in both if one.lease == "lease-2"), grace_s=1)
    assert set(await sampler.sample(both)) == {"lease-1"}


async def test_docker_that_does_not_answer_is_unknown(
    docker_maker: DockerMaker, ours: str, tmp_path: Path
) -> None:
    try:
        seen = await running(docker_maker, ours, SLEEP)
        unseen = Cgroups(proc=tmp_path / "no-proc", root=tmp_path / "no-cgroups")
        sampler = DockerSampler(base_url="unix:///no/such/docker.sock", cgroups=unseen)
        with pytest.raises(EngineUnavailable):
            await sampler.sample(seen)
        sampler.close()
    finally:
        docker_maker.clean()
