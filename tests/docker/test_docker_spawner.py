"""GpuDockerSpawner on a real engine: the container is the lease's, outlives the hub, is always removed."""

from __future__ import annotations

from typing import Any

import pytest
from allotment_testing.installation import Installation, wait_until
from allotment_testing.workloads import Containers

TEN = {"user_options": {"environment": "minimal", "flavor": "gpu-10gb"}}
CPU = {"user_options": {"environment": "minimal", "flavor": "cpu"}}


@pytest.fixture(scope="module", autouse=True)
def ann(installation: Installation) -> None:
    assert installation.hub("POST", "/users/ann").status == 201


def lease_of(installation: Installation, user: str) -> dict[str, Any] | None:
    found = installation.broker(f"leases?user={user}&live=true").json()
    return found[0] if found and found[0]["state"] == "active" else None


def test_a_session_has_exactly_its_device_and_outlives_the_hub(
    containers: Containers, installation: Installation
) -> None:
    assert installation.hub("POST", "/users/ann/server", TEN).status in (201, 202)
    wait_until(lambda: lease_of(installation, "ann"), what="it runs", limit_s=120)
    lease = lease_of(installation, "ann")
    assert lease is not None
    container = containers.of(lease["id"])
    uuid = lease["devices"][0]["uuid"]
    requests = container["HostConfig"]["DeviceRequests"]
    assert [one for request in requests for one in request["DeviceIDs"]] == [uuid]
    assert f"NVIDIA_VISIBLE_DEVICES={uuid}" in container["Config"]["Env"]
    assert container["Config"]["Labels"]["allotment.devices"] == uuid
    assert container["Config"]["Image"].startswith("sha256:")
    assert container["HostConfig"]["CapDrop"] == ["ALL"]
    assert container["HostConfig"]["Memory"] == container["HostConfig"]["MemorySwap"] == 8 * 2**30
    places = sorted((mount["Type"], mount["Destination"]) for mount in container["Mounts"])
    assert places == [("bind", "/scratch"), ("bind", "/tmp"), ("volume", "/home/jovyan")]
    assert container["HostConfig"]["PortBindings"] in (None, {})

    installation.restart("hub")
    wait_until(
        lambda: (installation.hub("GET", "/users/ann").json()["servers"].get("") or {}).get("ready"),
        what="the hub knows it again",
    )
    assert containers.of(lease["id"])["Id"] == container["Id"]
    after = lease_of(installation, "ann")
    assert after is not None
    assert after | {"cost": None} == lease | {"cost": None}

    assert installation.hub("DELETE", "/users/ann/server").status in (202, 204)
    wait_until(lambda: not containers.all(), what="the container is removed")
    wait_until(lambda: lease_of(installation, "ann") is None, what="the lease ends")


def test_a_cpu_session_sees_no_device(containers: Containers, installation: Installation) -> None:
    assert installation.hub("POST", "/users/ann/server", CPU).status in (201, 202)
    wait_until(lambda: lease_of(installation, "ann"), what="it runs", limit_s=120)
    lease = lease_of(installation, "ann")
    assert lease is not None
    container = containers.of(lease["id"])
    assert not container["HostConfig"]["DeviceRequests"]
    assert "NVIDIA_VISIBLE_DEVICES=void" in container["Config"]["Env"]
    containers.client.kill(container["Id"])
    wait_until(
        lambda: lease_of(installation, "ann") is None, what="the lease of a dead server ends", limit_s=90
    )
    wait_until(lambda: not containers.all(), what="the dead container is removed", limit_s=90)
