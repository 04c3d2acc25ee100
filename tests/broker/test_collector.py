"""Rounds of samples go on whatever is slow, silent or broken; what did not answer is missing, never 0."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from allotment_hub.broker.metrics.collector import Collector
from allotment_hub.broker.metrics.rounds import AGENT, DCGM, ENGINE, FILE, Round
from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.observe import Observations
from allotment_hub.broker.store.records import Lease
from allotment_hub.site import MetricSettings, Policies, Site
from allotment_spawner.core.errors import AgentUnavailable, EngineUnavailable, ExporterUnavailable
from allotment_spawner.core.samples import DeviceSample, NodeSamples, WorkloadSample
from allotment_spawner.engines.base import Workload
from allotment_testing.broker_api import until
from allotment_testing.broker_world import BrokerWorld
from allotment_testing.manual_clock import ManualClock
from allotment_testing.sample_makers import BEGAN, a_device, a_lease

CARD = DeviceSample("GPU-0", "GPU-0", power_w=100)
PIECE = DeviceSample("GPU-0", "MIG-1", sm_percent=None, memory_used_bytes=5)


async def answers() -> NodeSamples:
    return NodeSamples("node", BEGAN, True, (CARD, PIECE), {"GPU-1": "It hangs."})


async def refuses() -> NodeSamples:
    raise AgentUnavailable("The agent is away.", "Wait.")


async def hangs() -> NodeSamples:
    await asyncio.Event().wait()
    raise AssertionError("never")


async def breaks() -> NodeSamples:
    raise RuntimeError("a mistake")


@dataclass
class CountingSampler:
    """Counts CPU seconds as its `clock` runs; `fails` and `hangs` as engines do."""

    clock: ManualClock
    fails: bool = False
    hangs: bool = False
    calls: int = 0
    factor: float = 2.0
    waits_s: float = 0.0
    """What it waits for another session after it has read the counters."""

    async def sample(self, workloads: Sequence[Workload]) -> Mapping[str, WorkloadSample]:
        self.calls += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails:
            raise EngineUnavailable("The engine is away.", "Wait.")
        read_s = self.clock().timestamp()
        cpu_s = self.factor * (read_s - 1e9)
        self.clock.advance(self.waits_s)
        return {str(one.lease): WorkloadSample(str(one.lease), cpu_s, read_s=read_s) for one in workloads}


@dataclass
class FullKeeper:
    """Never has room."""

    kept: list[Round] = field(default_factory=list)

    def keep(self, taken: Round, leases: Sequence[Lease]) -> str | None:
        self.kept.append(taken)
        return "The disk is full."


class Bench:
    """A collector of one running lease between parts that a test chooses."""

    def __init__(
        self, *, devices: Callable[[], Awaitable[NodeSamples]] = answers, every_s: float = 0.2
    ) -> None:
        self.clock = ManualClock()
        self.devices = devices
        self.sampler = CountingSampler(self.clock)
        self.keeper = FullKeeper()
        self.book = Book()
        self.fills: Callable[[Sequence[DeviceSample]], Awaitable[Mapping[str, DeviceSample]]] | None = None
        seen = Observations(agent=None, engine=None, clock=self.clock)  # type: ignore[arg-type]
        lease = a_lease(devices=[a_device(1)])
        self.book.apply([lease, a_lease(2)])
        running = Workload("ref", "0123abcd", lease.id, "ada", "", "running", ("MIG-1",), (7,))
        seen.workloads = {lease.id: [running]}
        self.collector = Collector(
            every_s=every_s,
            devices=self._devices,
            sampler=self.sampler,
            fill_in=self._fill,
            keeper=self.keeper,
            book=self.book,
            observations=seen,
            cores=lambda _lease: 4.0,
            clock=self.clock,
            steady=lambda: self.clock().timestamp(),
        )

    async def _devices(self) -> NodeSamples:
        return await self.devices()

    async def _fill(self, samples: Sequence[DeviceSample]) -> Mapping[str, DeviceSample]:
        return {} if self.fills is None else await self.fills(samples)

    async def round(self, seconds: float = 0.2) -> Round:
        self.clock.advance(seconds)
        return await self.collector.once()


async def test_a_round_holds_devices_cards_sessions_and_what_is_missing() -> None:
    bench = Bench()
    first = await bench.round()
    assert first.devices == {"GPU-0": CARD, "MIG-1": PIECE}
    assert first.gpus == {"GPU-0": CARD}
    assert set(first.workloads) == {"lease-1"}
    assert first.workloads["lease-1"].cpu_cores_used is None
    assert first.missing == {"GPU-1": "It hangs.", FILE: "The disk is full."}
    second = await bench.round()
    assert second.workloads["lease-1"].cpu_cores_used == pytest.approx(2.0)
    assert second.workloads["lease-1"].cpu_cores == 4.0
    assert (second.at - first.at).total_seconds() == pytest.approx(0.2)
    assert bench.collector.latest is second
    assert bench.keeper.kept == [first, second]
    assert (bench.collector.rounds, bench.collector.missed["GPU-1"]) == (2, 2)


@pytest.mark.parametrize(
    ("agent", "word"), [(refuses, "away"), (hangs, "within 0.1 s"), (breaks, "could not be sampled")]
)
async def test_without_the_agent_sessions_are_still_sampled(
    agent: Callable[[], Awaitable[NodeSamples]], word: str
) -> None:
    bench = Bench(devices=agent)
    await bench.round()
    found = await bench.round()
    assert (found.devices, found.gpus) == ({}, {})
    assert word in found.missing[AGENT] or "not answered yet" in found.missing[AGENT]
    assert found.workloads["lease-1"].cpu_cores_used == pytest.approx(2.0)
    bench.devices = answers
    if agent is not hangs:
        assert (await bench.round()).devices["MIG-1"] == PIECE


async def test_an_agent_that_hangs_is_asked_once_and_not_again_until_it_answers() -> None:
    asked = 0
    let_go = asyncio.Event()

    async def late() -> NodeSamples:
        nonlocal asked
        asked += 1
        await let_go.wait()
        return await answers()

    bench = Bench(devices=late, every_s=0.05)
    for _ in range(4):
        assert AGENT in (await bench.round()).missing
    assert asked == 1
    let_go.set()
    await asyncio.sleep(0)
    # the late answer told of another moment; the next question is answered
    await until(lambda: asked == 1)
    assert (await bench.round()).devices["MIG-1"] == PIECE
    assert asked == 2


async def test_an_error_of_a_gpu_that_was_told_too_late_is_not_lost() -> None:
    let_go, told = asyncio.Event(), [(79,), ()]

    async def slow() -> NodeSamples:
        await let_go.wait()
        return NodeSamples("node", BEGAN, True, (replace(CARD, xids=told.pop(0)), PIECE))

    bench = Bench(devices=slow, every_s=0.05)
    assert AGENT in (await bench.round()).missing
    let_go.set()
    await until(lambda: len(told) == 1)
    found = await bench.round()
    assert found.gpus["GPU-0"].xids == (79,)
    assert found.devices["MIG-1"].xids is None


@pytest.mark.parametrize("way", ["fails", "hangs"])
async def test_without_the_engine_devices_are_still_sampled_and_rates_do_not_bridge_the_gap(way: str) -> None:
    bench = Bench()
    await bench.round()
    setattr(bench.sampler, way, True)
    for _ in range(4):
        found = await bench.round()
        assert found.workloads == {}
        assert found.missing[ENGINE]
        assert found.devices["MIG-1"] == PIECE
    setattr(bench.sampler, way, False)
    if way == "fails":
        back = await bench.round()
        # more than three rounds ago: what it did since says nothing of now
        assert back.workloads["lease-1"].cpu_cores_used is None
        assert (await bench.round()).workloads["lease-1"].cpu_cores_used == pytest.approx(2.0)


async def test_one_missed_round_is_bridged() -> None:
    bench = Bench()
    await bench.round()
    bench.sampler.fails = True
    await bench.round()
    bench.sampler.fails = False
    assert (await bench.round()).workloads["lease-1"].cpu_cores_used == pytest.approx(2.0)


async def test_an_answer_that_waited_for_another_session_changes_no_rate() -> None:
    bench = Bench()
    await bench.round()
    bench.sampler.waits_s = 0.15
    assert (await bench.round()).workloads["lease-1"].cpu_cores_used == pytest.approx(2.0)
    bench.sampler.waits_s = 0.0
    assert (await bench.round(0.05)).workloads["lease-1"].cpu_cores_used == pytest.approx(2.0)


async def test_a_counter_that_begins_anew_is_unknown_for_one_round() -> None:
    bench = Bench()
    await bench.round()
    bench.sampler.factor = 0.5
    assert (await bench.round()).workloads["lease-1"].cpu_cores_used is None
    assert (await bench.round()).workloads["lease-1"].cpu_cores_used == pytest.approx(0.5)


async def test_what_nvml_lacks_comes_from_the_exporter_and_its_silence_takes_nothing_away() -> None:
    bench = Bench()

    async def tells(samples: Sequence[DeviceSample]) -> Mapping[str, DeviceSample]:
        assert samples == (CARD, PIECE)
        return {"MIG-1": DeviceSample("GPU-0", "MIG-1", sm_percent=61, memory_used_bytes=5)}

    async def away(samples: Sequence[DeviceSample]) -> Mapping[str, DeviceSample]:
        raise ExporterUnavailable("The DCGM exporter is away.", "Wait.")

    bench.fills = tells
    assert (await bench.round()).devices["MIG-1"].sm_percent == 61
    bench.fills = away
    found = await bench.round()
    assert found.devices == {"GPU-0": CARD, "MIG-1": PIECE}
    assert found.missing[DCGM] == "The DCGM exporter is away."


async def test_a_session_that_ended_is_not_asked_for_and_nothing_of_it_stays() -> None:
    bench = Bench()
    await bench.round()
    bench.book = Book()
    bench.collector._book = bench.book
    calls = bench.sampler.calls
    assert (await bench.round()).workloads == {}
    assert bench.sampler.calls == calls
    assert bench.collector._before == {}


async def test_rounds_keep_their_pace_and_go_on_after_a_mistake(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(every_s=0.02)
    bench.collector._steady = time.monotonic
    bench.collector._book = None  # type: ignore[assignment]
    running = asyncio.ensure_future(bench.collector.run())
    try:
        await until(lambda: "a round of samples failed" in caplog.text)
        assert bench.collector.rounds == 0
        bench.collector._book = bench.book
        await until(lambda: bench.collector.rounds >= 5)
        wakes = bench.collector.changed.subscribe()
        before = await anext(wakes)
        assert await anext(wakes) > before
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_the_reconciler_does_not_wait_for_samples(tmp_path: Path) -> None:
    """An agent whose samples hang, in a whole broker with its loops running."""
    site = Site(policies=Policies(sessions_per_person=50), metrics=MetricSettings(every_s=1))
    world = BrokerWorld(tmp_path, site=site)
    world.agent.samples = hangs  # type: ignore[method-assign]
    async with world.broker() as broker:
        running = asyncio.ensure_future(broker.run())
        try:
            collector = broker.metrics.collector
            await until(lambda: collector.missed[AGENT] >= 2, deadline_s=20)
            began = time.monotonic()
            await broker.reconciler.once()
            assert time.monotonic() - began < 5
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
