"""kill -9 of each service at each step of a session's life, on the local engine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from allotment_testing.crash_orders import CrashOrders, crashing_environment
from allotment_testing.installation import Installation, wait_until
from allotment_testing.notebook import Notebook
from allotment_testing.recovery_checks import Session, slots_taken

FULL = os.environ.get("ALLOTMENT_KILL_MATRIX") == "full"
GPUS = "sim:1xA100-80GB:mig,1xA100-80GB:whole"

BROKER_STEPS = {
    "wait": "request.after",
    "reserve": "reserve.commit",
    "reserved": "reserve.after",
    "cut": "cut.before",
    "was-cut": "cut.after",
    "grant": "grant.commit",
    "granted": "grant.after",
    "confirm": "confirm.commit",
    "activate": "activate.commit",
    "end": "release.commit",
    "ending": "release.after",
    "finish": "finish.before",
    "free": "finish.commit",
    "freed": "finish.after",
}
HUB_STEPS = ("request", "wait", "create", "confirm", "start", "activate", "active")
OTHERS = ("agent", "proxy", "workload")

START_CASES = [
    *(("broker", BROKER_STEPS[name], ["broker"]) for name in list(BROKER_STEPS)[:9]),
    *(("hub", step, ["hub"]) for step in HUB_STEPS),
]
STOP_CASES = [("broker", BROKER_STEPS[name], ["broker"]) for name in list(BROKER_STEPS)[9:]]
if FULL:
    START_CASES += [("hub", step, [other]) for other in OTHERS[:2] for step in HUB_STEPS]
    START_CASES += [("hub", step, ["workload"]) for step in ("start", "activate", "active")]
    START_CASES += [("hub", step, ["hub", "broker"]) for step in HUB_STEPS]
    START_CASES += [("broker", BROKER_STEPS[name], ["agent"]) for name in ("cut", "was-cut", "grant")]
    STOP_CASES += [
        ("broker", BROKER_STEPS[name], [other])
        for name in ("end", "ending", "finish")
        for other in ("hub", "agent", "proxy")
    ]


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    made = Installation(gpus=GPUS)
    made.env |= crashing_environment(made.folder)
    try:
        made.up()
        yield made
    finally:
        made.close()


@pytest.fixture
def orders(installation: Installation) -> Iterator[CrashOrders]:
    made = CrashOrders(installation=installation)
    yield made
    made.withdraw()


@pytest.fixture(autouse=True)
def clean(installation: Installation) -> Iterator[None]:
    """A failed case must not make the next ones fail."""
    yield
    for server in ("", "second"):
        Session(installation=installation, server=server).stop()


def case_name(case: object) -> str:
    return "+".join(case) if isinstance(case, list) else str(case)


@pytest.mark.parametrize(("service", "step", "victims"), START_CASES, ids=case_name)
def test_killed_while_a_session_starts(
    installation: Installation, orders: CrashOrders, service: str, step: str, victims: list[str]
) -> None:
    session = Session(installation=installation)
    orders.give(service, step, victims)
    session.ask("gpu-10gb")
    wait_until(lambda: orders.carried_out, what=f"{service} came to {step}", limit_s=40)
    session.settle(started=time.monotonic())
    session.start("gpu-10gb")
    session.stop()


@pytest.mark.parametrize(("service", "step", "victims"), STOP_CASES, ids=case_name)
def test_killed_while_a_session_stops(
    installation: Installation, orders: CrashOrders, service: str, step: str, victims: list[str]
) -> None:
    session = Session(installation=installation)
    lease = session.start("gpu-10gb")
    orders.give(service, step, victims)
    session.ask_to_stop()
    wait_until(lambda: orders.carried_out, what=f"{service} came to {step}", limit_s=40)
    session.settle(started=time.monotonic())
    session.stop()
    ended = session.lease(lease["id"])
    assert ended["state"] == "ended"
    assert ended["active_at"] <= ended["stopped_at"] <= ended["ended_at"]
    assert slots_taken(installation) == 0


@pytest.mark.parametrize("victims", [["hub"], ["broker"], ["agent"], ["proxy"], ["hub", "broker", "agent"]])
def test_a_running_kernel_keeps_its_state(installation: Installation, victims: list[str]) -> None:
    session = Session(installation=installation)
    lease = session.start("gpu-10gb")
    notebook = Notebook(url=session.url, token=session.token)
    kernel = notebook.start_kernel()
    assert (
        notebook.run(kernel, "import os; x = 41; print(os.environ['CUDA_VISIBLE_DEVICES'])").strip()
        == (lease["devices"][0]["uuid"])
    )
    killed = {victim: installation.kill(victim) for victim in victims}
    for victim, pid in killed.items():
        installation.wait_ready(victim, other_than=pid)
    wait_until(lambda: session.reachable, what="the session is reachable again")
    assert notebook.run(kernel, "print(x + 1)").strip() == "42"
    after = session.lease(lease["id"])
    assert (after["state"], after["active_at"]) == ("active", lease["active_at"])
    session.stop()
    assert slots_taken(installation) == 0


def test_a_killed_workload_ends_its_lease(installation: Installation) -> None:
    session = Session(installation=installation)
    lease = session.start("gpu-10gb")
    session.kill_workload()
    wait_until(lambda: session.lease(lease["id"])["state"] == "ended", what="the lease ended")
    assert session.lease(lease["id"])["end_reason"] in ("workload_exited", "stopped")
    session.settle(started=time.monotonic())
    assert slots_taken(installation) == 0


def test_a_killed_supervisor_is_adopted(installation: Installation) -> None:
    session = Session(installation=installation)
    lease = session.start("gpu-10gb")
    pids = {name: installation.pid(name) for name in ("proxy", "agent", "broker", "hub")}
    installation.kill("supervisor")
    installation.up()
    assert {name: installation.pid(name) for name in pids} == pids, "services were left running"
    assert session.lease(lease["id"])["state"] == "active"
    session.stop()


@pytest.mark.parametrize("victim", ["broker", "hub"])
def test_killed_while_a_person_waits(installation: Installation, victim: str) -> None:
    """The place in the queue is kept; a hub that forgot the wait takes it up again with the next start."""
    holder, waiter = Session(installation=installation), Session(installation=installation, server="second")
    holder.start("gpu-full")
    waiter.ask("gpu-full")
    waiting = waiter.until_state("queued")
    installation.restart(victim)
    assert waiter.lease(waiting["id"])["state"] == "queued"
    if victim == "hub":
        waiter.ask("gpu-full")
    holder.stop()
    granted = waiter.until_state("active")
    assert granted["id"] == waiting["id"]
    waiter.stop()
    assert slots_taken(installation) == 0


def test_a_place_that_the_hub_forgot_can_be_given_up(installation: Installation) -> None:
    holder, waiter = Session(installation=installation), Session(installation=installation, server="second")
    holder.start("gpu-full")
    waiter.ask("gpu-full")
    waiting = waiter.until_state("queued")
    installation.restart("hub")
    waiter.stop()
    assert waiter.lease(waiting["id"])["end_reason"] == "cancelled"
    holder.stop()


def leases_of(installation: Installation) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = installation.broker("leases?limit=200").json()
    return found


def test_at_the_end_nothing_is_left(installation: Installation) -> None:
    """After all of the above: no live lease, no slot, no process, and times in order."""
    for lease in leases_of(installation):
        assert lease["state"] == "ended", lease
        if lease["active_at"]:
            assert lease["active_at"] <= lease["stopped_at"] <= lease["ended_at"]
    assert slots_taken(installation) == 0
    assert Path(installation.data).is_dir()
