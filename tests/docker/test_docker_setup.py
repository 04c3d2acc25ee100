"""What `up` asks of a real engine: our bridge, the driver for devices, a restart with live-restore."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from allotment_spawner.core.errors import EngineUnavailable
from allotment_spawner.engines.docker import DockerEngine
from allotment_spawner.engines.docker_setup import (
    Bridge,
    engine_facts,
    ensure_bridge,
    has_nvidia_driver,
    is_reachable,
)
from allotment_testing.docker_daemon import DockerDaemon
from allotment_testing.docker_images import BASE_IMAGE
from allotment_testing.docker_testbed import running_docker
from allotment_testing.engine_makers import DockerMaker

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

OURS = "0a1b2c3d"


@pytest.fixture(scope="module", params=[True, False], ids=["nvidia", "plain"])
def daemon(request: pytest.FixtureRequest) -> Iterator[tuple[DockerDaemon, bool]]:
    with running_docker(nvidia=request.param, live_restore=True) as running:
        yield running, request.param


@pytest.fixture
def client(daemon: tuple[DockerDaemon, bool]) -> Iterator[Any]:
    with contextlib.closing(daemon[0].client()) as client:
        yield client


def test_the_bridge_is_made_once_and_found_again(client: Any) -> None:
    made = ensure_bridge(client, name="allotment", installation=OURS)
    assert ensure_bridge(client, name="allotment", installation=OURS) == made
    assert is_reachable(made)
    network = client.inspect_network("allotment")
    assert network["Options"]["com.docker.network.bridge.enable_icc"] == "false"


def test_anothers_network_is_not_used(client: Any) -> None:
    ensure_bridge(client, name="theirs", installation="ffffffff")
    with pytest.raises(EngineUnavailable, match="not made by this installation"):
        ensure_bridge(client, name="theirs", installation=OURS)


def test_a_bridge_elsewhere_is_not_reachable() -> None:
    assert not is_reachable(Bridge("n", "id", "br-1", gateway="198.51.100.1", subnet="198.51.100.0/24"))


def test_the_nvidia_driver_is_found_by_trying(client: Any, daemon: tuple[DockerDaemon, bool]) -> None:
    # what a killed `up` left is no hindrance
    client.create_container(BASE_IMAGE, command=["true"], name=f"allotment-probe-{OURS}")
    assert has_nvidia_driver(client, image=BASE_IMAGE, installation=OURS) is daemon[1]
    assert client.containers(all=True) == []


def test_the_engine_tells_its_settings(client: Any) -> None:
    facts = engine_facts(client)
    assert facts.live_restore
    assert facts.cgroup_driver == "cgroupfs"
    assert facts.remote is None


async def test_a_container_outlives_the_engine_and_is_found_again(
    client: Any, daemon: tuple[DockerDaemon, bool]
) -> None:
    maker = DockerMaker(daemon[0].base_url, client, BASE_IMAGE)
    ref = maker.create(OURS, "lease-1", ["sleep", "600"])
    maker.start(ref)
    engine = DockerEngine(installation=OURS, base_url=daemon[0].base_url)
    [before] = await engine.observe()
    daemon[0].kill()
    with pytest.raises(EngineUnavailable):
        await engine.observe()
    daemon[0].start()
    assert list(await engine.observe()) == [before]
    await engine.stop(ref, grace_s=1)
    assert list(await engine.observe()) == []
    engine.close()
    maker.clean()
