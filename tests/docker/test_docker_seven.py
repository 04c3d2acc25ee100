"""Seven people on one GPU have seven slices; the eighth waits for the first that frees."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from allotment_testing.installation import Installation, wait_until
from allotment_testing.workloads import Containers
from docker.errors import NotFound

PEOPLE = [f"person-{number}" for number in range(1, 9)]
TEN = {"user_options": {"environment": "minimal", "flavor": "gpu-10gb"}}
CPU = {"user_options": {"environment": "minimal", "flavor": "cpu"}}
Lease = dict[str, Any]


def newest(installation: Installation, user: str) -> Lease | None:
    found: list[Lease] = installation.broker(f"leases?user={user}&limit=1").json()
    return found[0] if found else None


def active(installation: Installation, user: str) -> Lease:
    """This person's lease, once it is active."""

    def is_active() -> bool:
        lease = newest(installation, user)
        assert lease is None or lease["state"] != "ended", lease
        return lease is not None and lease["state"] == "active"

    wait_until(is_active, what=f"the session of {user}", limit_s=120)
    lease = newest(installation, user)
    assert lease is not None
    return lease


def ask(installation: Installation, user: str, options: dict[str, Any] = TEN) -> None:
    answer = installation.hub("POST", f"/users/{user}/server", options, timeout_s=90)
    assert answer.status in (201, 202), answer.body


def devices_inside(containers: Containers, lease: Lease) -> list[str]:
    """What the container itself reports: the driver's tool in it, which knows what the engine gave."""
    lines = containers.inside(lease["id"], "nvidia-smi", "-L").splitlines()
    return [line.rpartition("UUID: ")[2].rstrip(")") for line in lines]


@pytest.fixture(scope="module")
def seven(installation: Installation) -> dict[str, Lease]:
    """The leases of seven people who started at the same time."""
    allot = Path(sys.executable).parent / "allot"
    argv = [str(allot), "people", "add", *PEOPLE, "--data-dir", str(installation.data)]
    subprocess.run(argv, env=installation.env, check=True, capture_output=True)
    with ThreadPoolExecutor(7) as pool:
        list(pool.map(lambda user: ask(installation, user), PEOPLE[:7]))
    return {user: active(installation, user) for user in PEOPLE[:7]}


def test_seven_people_have_seven_slices(seven: dict[str, Lease], containers: Containers) -> None:
    leased = {user: lease["devices"][0] for user, lease in seven.items()}
    assert {device["profile"] for device in leased.values()} == {"1g.10gb"}
    assert len({device["uuid"] for device in leased.values()}) == 7
    assert len({tuple(device["placement"]) for device in leased.values()}) == 7


def test_each_container_reports_exactly_its_own(seven: dict[str, Lease], containers: Containers) -> None:
    for user, lease in seven.items():
        uuid = lease["devices"][0]["uuid"]
        assert devices_inside(containers, lease) == [uuid]
        words = containers.inside(lease["id"], "printenv", "ALLOTMENT_DEVICES", "JUPYTERHUB_USER").split()
        assert words == [uuid, user]


def test_the_eighth_waits_and_gets_the_first_that_frees(
    seven: dict[str, Lease], installation: Installation, containers: Containers
) -> None:
    with ThreadPoolExecutor(1) as pool:
        # the hub answers only after ten seconds when somebody waits
        asked = pool.submit(ask, installation, PEOPLE[7])
        wait_until(lambda: newest(installation, PEOPLE[7]), what="the eighth is in the queue")
        waiting = newest(installation, PEOPLE[7])
        assert waiting is not None
        assert (waiting["state"], waiting["place"]) == ("queued", 1)
        with pytest.raises(NotFound):
            containers.of(waiting["id"])
        freed = seven[PEOPLE[2]]
        assert installation.hub("DELETE", f"/users/{PEOPLE[2]}/server").status in (202, 204)
        asked.result()
    granted = active(installation, PEOPLE[7])
    assert granted["id"] == waiting["id"]
    assert granted["devices"][0]["uuid"] == freed["devices"][0]["uuid"]
    assert devices_inside(containers, granted) == [freed["devices"][0]["uuid"]]
    ended = installation.broker(f"leases/{freed['id']}").json()
    assert ended["ended_at"] <= granted["granted_at"]
    assert len(containers.all()) == 7


def test_a_cpu_session_sees_no_device(
    seven: dict[str, Lease], installation: Installation, containers: Containers
) -> None:
    """While every slice is taken, and by one who had a slice before."""
    ask(installation, PEOPLE[2], CPU)
    lease = active(installation, PEOPLE[2])
    assert lease["devices"] == []
    told = containers.inside(lease["id"], "printenv", "NVIDIA_VISIBLE_DEVICES", "ALLOTMENT_DEVICES")
    assert told.splitlines() == ["void", ""]
    left = containers.inside(lease["id"], "sh", "-c", "ls /run/nvidia-devices /dev/nvidia* 2>&1 || true")
    assert left.count("No such file") == 2
