"""Real broker, agent, hub and proxy: seven people share one GPU and the eighth waits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from allotment.client import Client
from allotment.errors import Unreachable
from allotment.samples import Samples, SessionLoad
from allotment.settings import Settings
from allotment.watching import watch
from allotment_hub.host.probes import request
from allotment_spawner.gpu.simulator.control import SimControl
from allotment_testing.hub_calls import processes_of
from allotment_testing.installation import Installation, wait_until

PEOPLE = [f"person{number}" for number in range(1, 9)]
ACCESS = "access:services!service=allotment"
TEN = {"user_options": {"environment": "minimal", "flavor": "gpu-10gb"}}


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    made = Installation(gpus="sim:1xA100-80GB:mig")
    try:
        made.up("--trust-users")
        for name in PEOPLE:
            assert made.hub("POST", f"/users/{name}").status == 201
        yield made
    finally:
        made.close()


def start(installation: Installation, user: str, body: dict[str, Any] | None = None) -> int:
    return installation.hub("POST", f"/users/{user}/server", body).status


def leases(installation: Installation, user: str, *, live: bool = True) -> list[dict[str, Any]]:
    answer = installation.broker(f"leases?user={user}&server=&live={str(live).lower()}")
    found: list[dict[str, Any]] = answer.json()
    return found


def active(installation: Installation, user: str) -> bool:
    return any(lease["state"] == "active" for lease in leases(installation, user))


def server(installation: Installation, user: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = installation.hub("GET", f"/users/{user}").json()["servers"].get("")
    return found


def test_seven_get_a_slice_each_and_the_eighth_waits(installation: Installation) -> None:
    for user in PEOPLE[:7]:
        assert start(installation, user, TEN) in (201, 202)
    for user in PEOPLE[:7]:
        wait_until(partial(active, installation, user), what=f"{user} runs", limit_s=150)
    devices = [leases(installation, user)[0]["devices"] for user in PEOPLE[:7]]
    assert len({one[0]["uuid"] for one in devices}) == 7
    assert {one[0]["profile"] for one in devices} == {"1g.10gb"}

    last = PEOPLE[7]
    assert start(installation, last, TEN) == 202
    wait_until(lambda: leases(installation, last), what="the eighth waits")
    waiting = leases(installation, last)[0]
    assert (waiting["state"], waiting["place"], waiting["devices"]) == ("queued", 1, [])

    first = PEOPLE[2]
    freed = leases(installation, first)[0]
    assert installation.hub("DELETE", f"/users/{first}/server").status in (202, 204)
    wait_until(lambda: active(installation, last), what="the eighth runs", limit_s=150)
    got = leases(installation, last)[0]
    assert got["id"] == waiting["id"]
    assert got["devices"][0]["placement"] == freed["devices"][0]["placement"]
    wait_until(lambda: not processes_of(freed["id"]), what="nothing of the first is left")


def test_how_hard_a_session_works_is_kept(installation: Installation) -> None:
    lease = leases(installation, PEOPLE[1])[0]
    [device] = lease["devices"]
    control = SimControl(installation.paths.simulator_state)
    pid = control.load(device["uuid"], used_bytes=3 * 2**30)

    def sampled() -> dict[str, Any]:
        found: dict[str, Any] = installation.broker(f"leases/{lease['id']}/metrics").json()
        return found

    def busy() -> bool:
        found = sampled()
        [shown], work = found["devices"], found["workload"]
        enough = max(known(shown["figures"], "memory_used_bytes"), default=0) >= 3 * 2**30
        return enough and bool(known(work, "cpu_cores_used"))

    try:
        wait_until(busy, what="the load shows")
    finally:
        # a process on its device would keep the session from ending
        control.unload(pid=pid)
    found = sampled()
    [shown], work = found["devices"], found["workload"]
    assert max(known(shown["card"], "power_w")) > 0
    # an A100 does not tell how busy a slice is, and the local engine not whose network it is: not 0 either
    assert known(shown["figures"], "sm_percent") == known(work, "network_rx_bytes_per_s") == []
    assert max(known(work, "memory_used_bytes")) > 10 * 2**20
    assert max(known(work, "processes")) >= 1


def known(figures: dict[str, Any], name: str) -> list[float]:
    return [value for value in figures[name]["mean"] if value is not None]


def test_a_cancelled_wait_leaves_nothing(installation: Installation) -> None:
    user = PEOPLE[2]
    assert start(installation, user, TEN) == 202
    wait_until(lambda: leases(installation, user), what="it waits")
    lease = leases(installation, user)[0]
    assert installation.hub("DELETE", f"/users/{user}/server").status == 204
    wait_until(lambda: not leases(installation, user), what="the lease ends")
    ended = leases(installation, user, live=False)[0]
    assert (ended["id"], ended["end_reason"]) == (lease["id"], "cancelled")
    assert server(installation, user) is None
    assert processes_of(lease["id"]) == []


def test_an_empty_request_starts_the_cheapest(installation: Installation) -> None:
    user = "newcomer"
    assert installation.hub("POST", f"/users/{user}").status == 201
    refused = installation.hub("POST", f"/users/{user}/server", {"user_options": {"flavor": "gpu-2x"}})
    assert refused.status == 422
    assert refused.json()["message"]
    assert start(installation, user) in (201, 202)
    wait_until(lambda: active(installation, user), what="it runs", limit_s=150)
    lease = leases(installation, user)[0]
    assert (lease["flavor"], lease["environment"], lease["devices"]) == ("cpu", "minimal", [])


def test_an_empty_request_repeats_the_last_choice_and_not_a_refused_one(installation: Installation) -> None:
    user = PEOPLE[2]
    body = {"user_options": {"environment": "minimal", "flavor": "gpu-2x"}}
    assert start(installation, user, body) == 422
    # JupyterHub answers 201 to a start after a failed one, also while it is pending
    assert start(installation, user) in (201, 202)
    wait_until(lambda: leases(installation, user), what="it waits")
    waiting = leases(installation, user)[0]
    assert (waiting["flavor"], waiting["state"]) == ("gpu-10gb", "queued")
    assert installation.hub("DELETE", f"/users/{user}/server").status == 204


def test_sessions_outlive_hub_and_broker(installation: Installation) -> None:
    user = PEOPLE[0]
    before = leases(installation, user)[0]
    pids = processes_of(before["id"])
    assert pids
    installation.restart("hub")
    installation.restart("broker")
    wait_until(lambda: (server(installation, user) or {}).get("ready"), what="the hub knows it again")
    after = leases(installation, user)[0]
    assert after | {"cost": None} == before | {"cost": None}
    assert Decimal(after["cost"]) > Decimal(before["cost"])
    assert set(processes_of(before["id"])) & set(pids)
    assert installation.hub("DELETE", f"/users/{user}/server").status in (202, 204)
    wait_until(lambda: not leases(installation, user), what="it ends")


def test_metrics_are_read_with_a_token_made_for_them(installation: Installation) -> None:
    address = f"{installation.connection.broker_url}metrics"
    scraper = token_of(installation, "admin", "read:metrics")
    page = request(address, token=scraper, timeout_s=30)
    assert page.status == 200, page.body
    assert b'allotment_leases{flavor="gpu-10gb",state="active"}' in page.body
    assert PEOPLE[3].encode() not in page.body
    assert installation.broker("leases", token=scraper).status == 403
    assert request(address, token=token_of(installation, PEOPLE[3], ACCESS), timeout_s=30).status == 403


def test_samples_come_again_after_the_broker_died(installation: Installation) -> None:
    settings = Settings(
        url=installation.connection.broker_url,
        token=token_of(installation, PEOPLE[3], ACCESS),
        hub_url=None,
        source="the test",
    )
    with Client(settings) as client:
        rounds = watch(client, everybody=False)
        before = seen_at_work(rounds)
        killed = installation.kill("broker")
        assert next(isinstance(one, Unreachable) for one in rounds if not isinstance(one, Samples))
        after = seen_at_work(rounds)
    installation.wait_ready("broker", other_than=killed)
    assert (after.lease, after.since) == (before.lease, before.since)
    assert before.cost is not None
    assert after.cost is not None
    assert after.cost > before.cost  # that the broker was away is no outage


def seen_at_work(rounds: Iterator[Samples | Unreachable]) -> SessionLoad:
    """The session in the first round that has both its slice and its processes."""
    for found in rounds:
        for one in found.leases if isinstance(found, Samples) else ():
            if one.devices[0].memory_used_bytes is not None and one.workload.cpu_cores_used is not None:
                assert (one.user, one.simulated, one.devices[0].profile) == (PEOPLE[3], True, "1g.10gb")
                assert one.devices[0].sm_percent is None  # an A100 does not tell it of slices
                return one
    raise AssertionError("the stream ended")


def token_of(installation: Installation, user: str, scope: str) -> str:
    made = installation.hub("POST", f"/users/{user}/tokens", {"scopes": [scope]})
    assert made.status == 201, made.body
    return str(made.json()["token"])


def test_top_shows_everybody_to_operators(installation: Installation) -> None:
    program = "from allotment.cli import main; main()"
    command = [sys.executable, "-c", program, "top", "--all", "--data-dir", str(installation.data)]
    environment = installation.env | {"COLUMNS": "150"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    for part in (PEOPLE[3], "10 GB", "1g.10gb", "simulated"):
        assert part in done.stdout
