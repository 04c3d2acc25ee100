"""kill -9 of each service and of the container at each step of a session's life on Docker."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from allotment_testing.crash_orders import CrashOrders
from allotment_testing.docker_daemon import DockerDaemon
from allotment_testing.docker_testbed import running_docker
from allotment_testing.installation import Installation, wait_until
from allotment_testing.recovery_checks import Session, slots_taken
from allotment_testing.workloads import Containers, docker_installation

FULL = os.environ.get("ALLOTMENT_KILL_MATRIX") == "full"

STEPS = ("create", "confirm", "start", "active")
START_CASES = [
    *(("hub", step, [victim]) for step in STEPS for victim in ("hub", "broker")),
    *(("hub", step, ["container"]) for step in STEPS[1:]),
]
STOP_CASES = [("broker", "release.commit", [victim]) for victim in ("broker", "hub", "container")]
if FULL:
    EVERY = ("request", "wait", "create", "confirm", "start", "activate", "active")
    START_CASES = [
        ("hub", step, [victim]) for step in EVERY for victim in ("hub", "broker", "agent", "proxy")
    ]
    START_CASES += [("hub", step, ["container"]) for step in EVERY[3:]]
    START_CASES += [("hub", step, ["hub", "broker"]) for step in EVERY[2:]]
    START_CASES += [
        ("broker", step, ["broker"])
        for step in ("request.after", "reserve.commit", "cut.before", "cut.after", "grant.commit")
    ]
    START_CASES += [
        ("broker", step, [victim])
        for step in ("confirm.commit", "activate.commit")
        for victim in ("broker", "hub", "container")
    ]
    STOP_CASES = [
        ("broker", step, [victim])
        for step in ("release.commit", "release.after", "finish.commit", "finish.after")
        for victim in ("broker", "hub", "agent", "proxy", "container")
    ]


@pytest.fixture(scope="module")
def daemon() -> Iterator[DockerDaemon]:
    with running_docker("minimal") as running:
        yield running


@pytest.fixture(scope="module")
def installation(daemon: DockerDaemon) -> Iterator[Installation]:
    with docker_installation(daemon, crashing=True) as made:
        yield made


@pytest.fixture
def orders(installation: Installation) -> Iterator[CrashOrders]:
    made = CrashOrders(installation=installation)
    yield made
    made.withdraw()


def case_name(case: object) -> str:
    return "+".join(case) if isinstance(case, list) else str(case)


def in_order(lease: dict[str, Any]) -> bool:
    """Its times, as far as it came."""
    known = [lease[name] for name in ("granted_at", "active_at", "stopped_at", "ended_at") if lease[name]]
    return known == sorted(known)


def strike(orders: CrashOrders, order: tuple[str, str, list[str]], act: Callable[[], None]) -> float:
    """Give the order, act, and wait until it was carried out; when that was (monotonic)."""
    service, step, victims = order
    orders.give(service, step, victims)
    # the hub's answer may take ten seconds; what counts is from the strike on
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(act)
        wait_until(lambda: orders.carried_out, what=f"{service} came to {step}", limit_s=40)
        struck = time.monotonic()
        asked.result()
    return struck


@pytest.mark.parametrize(("service", "step", "victims"), START_CASES, ids=case_name)
def test_killed_while_a_session_starts(
    installation: Installation,
    containers: Containers,
    session: Session,
    orders: CrashOrders,
    service: str,
    step: str,
    victims: list[str],
) -> None:
    """Within the limit it runs whole or is gone whole, with one container and one slot or none."""
    session.settle(started=strike(orders, (service, step, victims), lambda: session.ask("gpu-10gb")))
    lease = session.newest()
    running = lease is not None and lease["state"] == "active"
    assert len(containers.all()) == slots_taken(installation) == (1 if running else 0)
    session.stop()
    assert containers.all() == []
    assert slots_taken(installation) == 0
    assert lease is None or in_order(session.lease(lease["id"]))


@pytest.mark.parametrize(("service", "step", "victims"), STOP_CASES, ids=case_name)
def test_killed_while_a_session_stops(
    installation: Installation,
    containers: Containers,
    session: Session,
    orders: CrashOrders,
    service: str,
    step: str,
    victims: list[str],
) -> None:
    lease = session.start("gpu-10gb")
    session.settle(started=strike(orders, (service, step, victims), session.ask_to_stop))
    session.stop()
    ended = session.lease(lease["id"])
    assert ended["state"] == "ended"
    assert ended["active_at"]
    assert in_order(ended)
    assert containers.all() == []
    assert slots_taken(installation) == 0


def test_a_killed_container_is_not_billed_any_more(
    installation: Installation, session: Session, containers: Containers
) -> None:
    lease = session.start("gpu-10gb")
    killed = datetime.now(UTC)
    session.kill_workload()
    wait_until(lambda: session.lease(lease["id"])["state"] == "ended", what="the lease ended")
    ended = session.lease(lease["id"])
    assert ended["end_reason"] in ("workload_exited", "stopped")
    late = datetime.fromisoformat(ended["stopped_at"]) - killed
    assert timedelta(0) <= late < timedelta(seconds=10)
    assert in_order(ended)
    assert containers.all() == []
    assert slots_taken(installation) == 0


def test_at_the_end_nothing_is_left(installation: Installation, containers: Containers) -> None:
    """Of all the above: no live lease, no slot, no container, no stray."""
    for lease in installation.broker("leases?limit=200").json():
        assert lease["state"] == "ended", lease
        assert in_order(lease)
    assert slots_taken(installation) == 0
    assert containers.all() == []
    assert installation.broker("fleet").json()["strays"] == []
