"""GpuDockerSpawner on a real engine: the container is the lease's, outlives the hub, is always removed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import docker
import pytest
from allotment_testing.docker_daemon import DockerDaemon
from allotment_testing.docker_testbed import running_docker
from allotment_testing.installation import Installation, wait_until

TEN = {"user_options": {"environment": "minimal", "flavor": "gpu-10gb"}}
CPU = {"user_options": {"environment": "minimal", "flavor": "cpu"}}


@pytest.fixture(scope="module")
def daemon() -> Iterator[DockerDaemon]:
    with running_docker("minimal") as running:
        yield running


@pytest.fixture(scope="module")
def engine(daemon: DockerDaemon) -> Iterator[Any]:
    client = docker.APIClient(base_url=daemon.base_url)
    yield client
    client.close()


@pytest.fixture(scope="module")
def installation(daemon: DockerDaemon) -> Iterator[Installation]:
    made = Installation(gpus="sim:1xA100-80GB:mig", engine="docker")
    # what `up` makes of an empty folder, with one thing changed: which engine
    made.paths.site.parent.mkdir(parents=True)
    made.paths.runtime.parent.mkdir()
    made.paths.site.write_text(f"docker: {{socket: '{daemon.base_url}', request_devices: nvidia}}\n")
    try:
        made.up()
        assert made.hub("POST", "/users/ann").status == 201
        yield made
    finally:
        made.close()


def lease_of(installation: Installation, user: str) -> dict[str, Any] | None:
    found = installation.broker(f"leases?user={user}&live=true").json()
    return found[0] if found and found[0]["state"] == "active" else None


def container_of(engine: Any, installation: Installation, lease: str) -> dict[str, Any]:
    name = f"allotment-{installation.runtime.installation}-{lease}"
    found: dict[str, Any] = engine.inspect_container(name)
    return found


def ours(engine: Any, installation: Installation) -> list[dict[str, Any]]:
    label = f"allotment.installation={installation.runtime.installation}"
    found: list[dict[str, Any]] = engine.containers(all=True, filters={"label": [label]})
    return found


def test_a_session_has_exactly_its_device_and_outlives_the_hub(
    engine: Any, installation: Installation
) -> None:
    assert installation.hub("POST", "/users/ann/server", TEN).status in (201, 202)
    wait_until(lambda: lease_of(installation, "ann"), what="it runs", limit_s=120)
    lease = lease_of(installation, "ann")
    assert lease is not None
    container = container_of(engine, installation, lease["id"])
    uuid = lease["devices"][0]["uuid"]
    requests = container["HostConfig"]["DeviceRequests"]
    assert [one for request in requests for one in request["DeviceIDs"]] == [uuid]
    assert f"NVIDIA_VISIBLE_DEVICES={uuid}" in container["Config"]["Env"]
    assert container["Config"]["Labels"]["allotment.devices"] == uuid
    assert container["Config"]["Image"].startswith("sha256:")
    assert container["HostConfig"]["CapDrop"] == ["ALL"]
    assert container["HostConfig"]["Memory"] == container["HostConfig"]["MemorySwap"] == 8 * 2**30
    assert [mount["Type"] for mount in container["Mounts"]] == ["volume"]
    assert container["HostConfig"]["PortBindings"] in (None, {})

    installation.restart("hub")
    wait_until(
        lambda: (installation.hub("GET", "/users/ann").json()["servers"].get("") or {}).get("ready"),
        what="the hub knows it again",
    )
    assert container_of(engine, installation, lease["id"])["Id"] == container["Id"]
    assert lease_of(installation, "ann") == lease

    assert installation.hub("DELETE", "/users/ann/server").status in (202, 204)
    wait_until(lambda: not ours(engine, installation), what="the container is removed")
    wait_until(lambda: lease_of(installation, "ann") is None, what="the lease ends")


def test_a_cpu_session_sees_no_device(engine: Any, installation: Installation) -> None:
    assert installation.hub("POST", "/users/ann/server", CPU).status in (201, 202)
    wait_until(lambda: lease_of(installation, "ann"), what="it runs", limit_s=120)
    lease = lease_of(installation, "ann")
    assert lease is not None
    container = container_of(engine, installation, lease["id"])
    assert not container["HostConfig"]["DeviceRequests"]
    assert "NVIDIA_VISIBLE_DEVICES=void" in container["Config"]["Env"]
    engine.kill(container["Id"])
    wait_until(
        lambda: lease_of(installation, "ann") is None, what="the lease of a dead server ends", limit_s=90
    )
    wait_until(lambda: not ours(engine, installation), what="the dead container is removed", limit_s=90)
