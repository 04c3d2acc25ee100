"""DockerEngine: forged names and labels, engines that err or hang, what was really requested."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from allotment_spawner.core.errors import EngineUnavailable
from allotment_spawner.engines.docker import DockerEngine
from allotment_spawner.launch.names import LABEL_DEVICES, LABEL_INSTALLATION, container_name
from allotment_testing.docker_images import BASE_IMAGE
from allotment_testing.docker_testbed import running_docker
from allotment_testing.engine_makers import DockerMaker
from docker.errors import APIError, NotFound

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

SLEEP = ["sleep", "600"]


@pytest.fixture(scope="module")
def platform() -> Iterator[DockerMaker]:
    with running_docker() as daemon, contextlib.closing(daemon.client()) as client:
        yield DockerMaker(daemon.base_url, client, BASE_IMAGE)


@pytest.fixture
def maker(platform: DockerMaker) -> Iterator[DockerMaker]:
    yield platform
    platform.clean()


@pytest.fixture
def ours() -> str:
    return uuid.uuid4().hex[:8]


async def test_our_label_with_another_name_is_reported_and_left_alone(maker: DockerMaker, ours: str) -> None:
    ref = maker.create(ours, "lease-1", SLEEP, name=f"stray-{ours}")
    maker.start(ref)
    engine = maker.engine(ours)
    [seen] = await engine.observe()
    assert (seen.engine_ref, seen.lease, seen.state) == (f"stray-{ours}", None, "running")
    with pytest.raises(EngineUnavailable, match="not one that Allotment made"):
        await engine.stop(ref, grace_s=1)
    assert maker.running(ref)


async def test_our_name_with_anothers_label_is_not_ours(maker: DockerMaker, ours: str) -> None:
    ref = maker.create(ours, "lease-1", SLEEP, labels={LABEL_INSTALLATION: "someone"})
    maker.start(ref)
    engine = maker.engine(ours)
    assert list(await engine.observe()) == []
    with pytest.raises(EngineUnavailable, match="not one that Allotment made"):
        await engine.stop(ref, grace_s=1)
    assert maker.running(ref)


async def test_the_name_decides_the_lease_even_after_a_rename(maker: DockerMaker, ours: str) -> None:
    ref = maker.create(ours, "lease-1", SLEEP)
    maker.client.rename(ref, container_name(ours, "lease-2"))
    [seen] = await maker.engine(ours).observe()
    assert (seen.lease, seen.engine_ref) == ("lease-2", container_name(ours, "lease-2"))


async def test_devices_are_the_requested_ones_not_the_labelled(maker: DockerMaker, ours: str) -> None:
    labels = {LABEL_INSTALLATION: ours, LABEL_DEVICES: "MIG-forged"}
    maker.create(ours, "lease-1", SLEEP, devices=["MIG-real"], labels=labels)
    [seen] = await maker.engine(ours).observe()
    assert seen.devices == ("MIG-real",)


async def test_a_paused_container_counts_as_running_and_can_be_stopped(maker: DockerMaker, ours: str) -> None:
    ref = maker.create(ours, "lease-1", SLEEP)
    maker.start(ref)
    maker.client.pause(ref)
    engine = maker.engine(ours)
    [seen] = await engine.observe()
    assert seen.state == "running"
    await engine.stop(ref, grace_s=1)
    assert list(await engine.observe()) == []


async def test_a_home_volume_survives_the_container(maker: DockerMaker, ours: str) -> None:
    ref = maker.create(ours, "lease-1", ["true"])
    await maker.engine(ours).stop(ref, grace_s=1)
    volume = maker.client.inspect_volume(f"allotment-{ours}-home-ada")
    assert volume["Labels"] == {LABEL_INSTALLATION: ours}
    maker.client.remove_volume(volume["Name"])


class AnswersError:
    """A Docker client whose every call fails with this status."""

    def __init__(self, status: int) -> None:
        self._status = status

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            response = requests.Response()
            response.status_code = self._status
            kind = NotFound if self._status == 404 else APIError
            raise kind("made up", response=response)

        return call


async def test_a_server_error_is_unknown_not_gone(ours: str) -> None:
    engine = DockerEngine(installation=ours, client_factory=lambda: AnswersError(500))
    for ask in (engine.observe(), engine.stop(container_name(ours, "l"), grace_s=0), engine.check()):
        with pytest.raises(EngineUnavailable):
            await ask
    engine._opened.clear()
    engine.close()


async def test_only_not_found_is_gone(ours: str) -> None:
    engine = DockerEngine(installation=ours, client_factory=lambda: AnswersError(404))
    await engine.stop(container_name(ours, "l"), grace_s=0)
    engine._opened.clear()
    engine.close()


async def test_an_engine_that_hangs_is_given_up_at_the_deadline(tmp_path: Path, ours: str) -> None:
    path = tmp_path / "docker.sock"
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as silent:
        silent.bind(str(path))
        silent.listen()
        engine = DockerEngine(installation=ours, base_url=f"unix://{path}", deadline_s=0.3)
        began = time.monotonic()
        with pytest.raises(EngineUnavailable):
            await asyncio.gather(engine.observe(), engine.check())
        assert time.monotonic() - began < 5
        engine.close()
