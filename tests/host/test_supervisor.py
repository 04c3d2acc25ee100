"""The supervisor with small stand-in services: order, deaths, adoption, end."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from allotment_hub.host import processes
from allotment_hub.host.specs import ServiceSpec
from allotment_hub.host.supervisor import Supervisor
from allotment_hub.host.waiting import read_state
from allotment_hub.paths import Paths
from allotment_testing.installation import wait_until

SLEEPS = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)")
ENDS_AT_ONCE = (sys.executable, "-c", "raise SystemExit(3)")
IGNORES_TERM = (
    sys.executable,
    "-c",
    "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)",
)


class Bench:
    """Supervisors over one folder, with a clock that the test moves."""

    def __init__(self, folder: Path) -> None:
        (folder / "run").mkdir()
        self.folder = folder
        self.now = 0.0
        self.said: list[str] = []
        self.refreshed = 0
        self.made: list[Supervisor] = []

    def supervisor(self, *specs: ServiceSpec) -> Supervisor:
        made = Supervisor(
            data=self.folder,
            specs=specs,
            clock=lambda: self.now,
            refresh_routes=self._refresh,
            log=self.said.append,
        )
        self.made.append(made)
        return made

    def spec(self, name: str, argv: tuple[str, ...] = SLEEPS, *, recipe: str = "1") -> ServiceSpec:
        log = self.folder / f"{name}.log"
        return ServiceSpec(
            name=name,
            argv=argv,
            env=dict(os.environ),
            cwd=self.folder,
            log=log,
            ready=lambda: log.exists() and "up" in log.read_text(encoding="utf-8"),
            recipe=recipe,
        )

    def pid(self, name: str) -> int | None:
        found = processes.recall(self.folder / "run" / f"{name}.pid")
        return found.pid if found else None

    def until_ready(self, supervisor: Supervisor, count: int) -> None:
        def ready() -> bool:
            supervisor.tick()
            return sum("ready after" in line for line in self.said) >= count

        wait_until(ready, what=f"{count} services ready", limit_s=20)

    def _refresh(self) -> bool:
        self.refreshed += 1
        return True


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    for supervisor in made.made:
        supervisor.stop()


def test_each_starts_when_the_one_before_is_ready(bench: Bench) -> None:
    supervisor = bench.supervisor(bench.spec("agent"), bench.spec("broker"))
    supervisor.tick()
    assert bench.pid("agent") is not None
    assert bench.pid("broker") is None
    bench.until_ready(supervisor, 2)
    assert bench.pid("broker") is not None


def test_a_service_that_is_never_ready_does_not_hold_back_the_rest_for_ever(bench: Bench) -> None:
    silent = (sys.executable, "-c", "import time; time.sleep(600)")
    supervisor = bench.supervisor(bench.spec("agent", silent), bench.spec("broker"))
    supervisor.tick()
    supervisor.tick()
    assert bench.pid("broker") is None
    bench.now = 31.0
    supervisor.tick()
    assert bench.pid("broker") is not None


def test_what_dies_is_started_again(bench: Bench) -> None:
    supervisor = bench.supervisor(bench.spec("agent"), bench.spec("broker"))
    bench.until_ready(supervisor, 2)
    first = bench.pid("agent")
    assert first is not None
    os.kill(first, signal.SIGKILL)

    def replaced() -> bool:
        supervisor.tick()
        return bench.pid("agent") not in (None, first)

    wait_until(replaced, what="another agent", limit_s=10)


def test_one_that_keeps_dying_is_tried_less_and_less_often(bench: Bench) -> None:
    supervisor = bench.supervisor(bench.spec("agent", ENDS_AT_ONCE))

    def deaths() -> int:
        return sum("ended with code 3" in line for line in bench.said)

    def died(times: int) -> bool:
        supervisor.tick()
        return deaths() >= times

    wait_until(lambda: died(2), what="two deaths", limit_s=20)
    limit = time.monotonic() + 0.5
    while time.monotonic() < limit:
        supervisor.tick()
    assert deaths() == 2
    bench.now += 1.0
    wait_until(lambda: died(3), what="the third start when it is due", limit_s=20)


def test_the_next_supervisor_adopts_what_a_killed_one_left(bench: Bench) -> None:
    first = bench.supervisor(bench.spec("agent"), bench.spec("broker"))
    bench.until_ready(first, 2)
    before = (bench.pid("agent"), bench.pid("broker"))
    second = bench.supervisor(bench.spec("agent"), bench.spec("broker"))
    second.adopt()
    second.tick()
    assert (bench.pid("agent"), bench.pid("broker")) == before
    assert before[0] is not None
    second.stop()
    assert (bench.pid("agent"), bench.pid("broker")) == (None, None)


def test_an_outdated_process_is_replaced_not_adopted(bench: Bench) -> None:
    first = bench.supervisor(bench.spec("agent"))
    bench.until_ready(first, 1)
    before = bench.pid("agent")
    second = bench.supervisor(bench.spec("agent", recipe="2"))
    second.adopt()
    second.tick()
    assert bench.pid("agent") not in (None, before)


def test_a_pid_that_somebody_else_has_by_now_is_not_adopted(bench: Bench) -> None:
    mine = processes.Process(pid=os.getpid(), started=1, boot=processes.boot_id(), recipe="1")
    processes.remember(bench.folder / "run" / "agent.pid", mine)
    supervisor = bench.supervisor(bench.spec("agent"))
    supervisor.adopt()
    supervisor.tick()
    assert bench.pid("agent") not in (None, os.getpid())


def test_a_new_proxy_gets_its_routes_once(bench: Bench) -> None:
    supervisor = bench.supervisor(bench.spec("proxy"), bench.spec("hub"))
    bench.until_ready(supervisor, 2)
    supervisor.tick()
    assert bench.refreshed == 1
    pid = bench.pid("proxy")
    assert pid is not None
    os.kill(pid, signal.SIGKILL)

    def refreshed_again() -> bool:
        supervisor.tick()
        return bench.refreshed == 2

    wait_until(refreshed_again, what="routes sent to the new proxy", limit_s=10)


def test_a_child_that_dies_right_after_it_was_looked_at_is_reaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, child = processes.start(
        ENDS_AT_ONCE, env=dict(os.environ), cwd=tmp_path, log=tmp_path / "child.log"
    )
    wait_until(lambda: not process.alive(), what="a dead child", limit_s=10)
    monkeypatch.setattr(child, "poll", lambda: None)
    processes.end(process, grace_s=1, child=child)
    assert child.returncode == 3


def test_one_that_ignores_sigterm_is_killed(bench: Bench) -> None:
    supervisor = bench.supervisor(bench.spec("agent", IGNORES_TERM))
    bench.until_ready(supervisor, 1)
    found = processes.recall(bench.folder / "run" / "agent.pid")
    assert found is not None
    processes.end(found, grace_s=0.2)
    supervisor.tick()
    assert not found.alive()


def test_a_service_whose_program_is_missing_counts_as_dead(bench: Bench) -> None:
    supervisor = bench.supervisor(bench.spec("agent", ("/nowhere/allotment-agent",)))
    for _ in range(3):
        supervisor.tick()
        bench.now += 15.0
    assert sum("agent: cannot be started" in line for line in bench.said) == 3
    assert read_state(Paths(bench.folder))["agent"]["deaths"] == 3


def test_a_full_disk_does_not_end_the_services(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = bench.supervisor(bench.spec("agent"))
    bench.until_ready(supervisor, 1)
    pid = bench.pid("agent")
    assert pid is not None
    stop, rounds = threading.Event(), []

    def no_room(*_: object) -> None:
        rounds.append(bench.now)
        if len(rounds) == 3:
            stop.set()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("allotment_hub.host.supervisor.rotate", no_room)
    monkeypatch.setattr("allotment_hub.host.supervisor.TICK_S", 0.0)
    monkeypatch.setattr("allotment_hub.host.supervisor.ROTATE_EVERY_S", 0.0)
    bench.now += 60.0
    supervisor.run(stop)
    assert bench.pid("agent") == pid
    assert sum("No space left on device" in line for line in bench.said) == 1, "said once, not at every round"


def test_the_state_is_written_once_there_is_room_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = bench.supervisor(bench.spec("agent"))

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr("allotment_hub.host.supervisor.write_private", no_room)
        with pytest.raises(OSError, match="No space left"):
            supervisor.tick()
    supervisor.tick()
    assert read_state(Paths(bench.folder))["agent"]["pid"] == bench.pid("agent")
