"""LocalEngine: processes that hide, fork or carry another's name; the gate; pids used again."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from allotment_spawner.engines.base import Engine, Workload
from allotment_spawner.engines.procfs import read_process, send_signal
from allotment_testing.engine_makers import LocalMaker

PROC = Path("/proc")


@pytest.fixture
def maker(tmp_path: Path) -> Iterator[LocalMaker]:
    maker = LocalMaker(tmp_path)
    yield maker
    maker.clean()


@pytest.fixture
def ours() -> str:
    return uuid.uuid4().hex[:8]


async def one(engine: Engine, *, state: str = "running", pids: int = 1) -> Workload:
    end = time.monotonic() + 15
    while True:
        seen = await engine.observe()
        if len(seen) == 1 and seen[0].state == state and len(seen[0].pids) >= pids:
            return seen[0]
        assert time.monotonic() < end, f"still {seen}"
        await asyncio.sleep(0.02)


async def test_a_closed_gate_runs_nothing(maker: LocalMaker, ours: str, tmp_path: Path) -> None:
    proof = tmp_path / "ran"
    ref = maker.create(ours, "lease-1", ["touch", str(proof)])
    process = maker.process(ref)
    assert process.stdin is not None
    process.stdin.close()
    assert await asyncio.to_thread(process.wait, 10) == 75
    assert not proof.exists()


async def test_a_child_without_environment_is_still_found_and_ended(maker: LocalMaker, ours: str) -> None:
    ref = maker.create(ours, "lease-1", ["/bin/sh", "-c", "env -i /bin/sleep 601 & wait"])
    maker.start(ref)
    engine = maker.engine(ours)
    seen = await one(engine, pids=2)
    assert any(b"601" in (PROC / str(pid) / "cmdline").read_bytes() for pid in seen.pids)
    await engine.stop(ref, grace_s=5)
    assert [pid for pid in seen.pids if read_process(PROC, pid, uid=os.getuid())] == []


async def test_a_kernel_in_its_own_session_is_ended_too(maker: LocalMaker, ours: str) -> None:
    ref = maker.create(ours, "lease-1", ["/bin/sh", "-c", "setsid sleep 602 & setsid sleep 603 & wait"])
    maker.start(ref)
    engine = maker.engine(ours)
    await one(engine, pids=3)
    await engine.stop(ref, grace_s=5)
    assert list(await engine.observe()) == []


async def test_orphans_are_found_after_the_server_died(maker: LocalMaker, ours: str) -> None:
    ref = maker.create(ours, "lease-1", ["/bin/sh", "-c", "setsid sleep 604 & wait"])
    maker.start(ref)
    engine = maker.engine(ours)
    await one(engine, pids=2)
    maker.process(ref).kill()
    seen = await one(engine)
    assert (seen.lease, seen.user) == ("lease-1", "ada")
    await engine.stop(ref, grace_s=5)
    assert list(await engine.observe()) == []


async def test_another_installation_started_from_a_terminal_is_left_alone(
    maker: LocalMaker, ours: str
) -> None:
    inner = "env ALLOTMENT_INSTALLATION=other ALLOTMENT_LEASE=theirs setsid sleep 605 & wait"
    ref = maker.create(ours, "lease-1", ["/bin/sh", "-c", inner])
    maker.start(ref)
    other = maker.engine("other")
    theirs = await one(other)
    await maker.engine(ours).stop(ref, grace_s=5)
    assert [found.pids for found in await other.observe()] == [theirs.pids]
    await other.stop("theirs", grace_s=5)


async def test_one_that_forks_while_it_is_killed_is_ended(maker: LocalMaker, ours: str) -> None:
    again = 'trap "" TERM; f() { sleep 0.2; f & }; for i in 1 2 3; do f & done; while :; do sleep 0.1; done'
    ref = maker.create(ours, "lease-1", ["/bin/bash", "-c", again])
    maker.start(ref)
    engine = maker.engine(ours)
    await one(engine, pids=3)
    await engine.stop(ref, grace_s=0.2)
    assert list(await engine.observe()) == []


async def test_the_server_is_asked_first_and_ends_its_children_in_order(
    maker: LocalMaker, ours: str, tmp_path: Path
) -> None:
    note = tmp_path / "order"
    child = f'trap "echo child >> {note}; exit" TERM; while :; do sleep 0.05; done'
    server = f"/bin/sh -c '{child}' & kid=$!; trap 'echo server >> {note}; kill $kid; wait $kid; exit' TERM; "
    ref = maker.create(ours, "lease-1", ["/bin/sh", "-c", server + "wait"])
    maker.start(ref)
    engine = maker.engine(ours)
    await one(engine, pids=3)
    await engine.stop(ref, grace_s=10)
    assert note.read_text().split() == ["server", "child"]


def test_a_pid_used_again_is_not_signalled() -> None:
    with subprocess.Popen(["sleep", "606"]) as process:
        found = read_process(PROC, process.pid, uid=os.getuid())
        assert found is not None
        send_signal(PROC, replace(found, started=found.started - 1), signal.SIGKILL)
        assert process.poll() is None
        send_signal(PROC, found, signal.SIGKILL)
        assert process.wait(10) == -signal.SIGKILL


def test_another_users_process_is_not_read() -> None:
    assert read_process(PROC, os.getpid(), uid=os.getuid() + 1) is None
