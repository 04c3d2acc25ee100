"""Real broker, agent, hub and proxy: seven people share one GPU and the eighth waits."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from allotment_testing.hub_calls import processes_of
from allotment_testing.installation import Installation, wait_until

PEOPLE = [f"person{number}" for number in range(1, 9)]
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
    assert leases(installation, user)[0] == before
    assert set(processes_of(before["id"])) & set(pids)
    assert installation.hub("DELETE", f"/users/{user}/server").status in (202, 204)
    wait_until(lambda: not leases(installation, user), what="it ends")
