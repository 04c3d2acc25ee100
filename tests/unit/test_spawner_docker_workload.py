"""One container of one attempt, against an engine that forgets, conflicts and fails."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock

import pytest
from allotment_spawner.core.errors import EngineUnavailable, EnvironmentUnavailable, StartFailed
from allotment_spawner.spawners.docker_workload import DockerWorkload
from docker.errors import APIError, ImageNotFound, NotFound
from requests.exceptions import ConnectionError as ConnectionLost

OURS = {"allotment.installation": "feedbeef"}


def api_error(status: int) -> APIError:
    kind = NotFound if status == 404 else APIError
    return kind("engine says no", response=Mock(status_code=status), explanation="engine says no")


class EngineInMemory:
    """Containers by id; `fail` maps a method to the errors that it raises next."""

    def __init__(self) -> None:
        self.containers: dict[str, dict[str, Any]] = {}
        self.fail: dict[str, list[Exception]] = {}
        self.slow = asyncio.Event()
        self.slow.set()
        self.calls: list[str] = []
        self.log = b""

    async def __call__(self, method: str, /, *args: Any, **kwargs: Any) -> Any:
        self.calls.append(method)
        if self.fail.get(method):
            raise self.fail[method].pop(0)
        return await getattr(self, f"_{method}")(*args, **kwargs)

    def add(self, name: str, *, labels: dict[str, str] = OURS, running: bool = False, **config: Any) -> str:
        if any(one["Name"] == f"/{name}" for one in self.containers.values()):
            raise api_error(409)
        key = f"id{len(self.calls)}{len(self.containers)}"
        self.containers[key] = {
            "Id": key,
            "Name": f"/{name}",
            "Config": {"Labels": labels, "Env": config.get("env", [])},
            "HostConfig": config.get("host", {}),
            "State": {"Running": running, "ExitCode": 0},
        }
        return key

    async def _create_container(self, *, name: str, **_: Any) -> dict[str, Any]:
        await self.slow.wait()
        return {"Id": self.add(name)}

    async def _inspect_container(self, ref: str) -> dict[str, Any]:
        for key, one in self.containers.items():
            if ref in (key, one["Name"].removeprefix("/")):
                return one
        raise api_error(404)

    async def _logs(self, _: str, *, tail: int) -> bytes:
        return self.log if tail else b""

    async def _start(self, ref: str) -> None:
        (await self._inspect_container(ref))["State"]["Running"] = True

    async def _stop(self, ref: str, timeout: int) -> None:
        (await self._inspect_container(ref))["State"]["Running"] = False

    async def _remove_container(self, ref: str, **_: Any) -> None:
        del self.containers[(await self._inspect_container(ref))["Id"]]


def workload(
    engine: EngineInMemory, name: str = "allotment-feedbeef-l1", *, create: bool = True
) -> DockerWorkload:
    async def locate(_: str) -> str:
        return "http://172.18.0.2:8888/user/ann/"

    return DockerWorkload(
        engine_ref=name,
        installation="feedbeef",
        docker=engine,
        locate=locate,
        create={"name": name} if create else None,
    )


async def test_made_started_and_removed() -> None:
    engine = EngineInMemory()
    one = workload(engine)
    await one.make()
    assert await one.exited() == "exit code 0"
    await one.start()
    assert await one.exited() is None
    assert await one.url() == "http://172.18.0.2:8888/user/ann/"
    await one.remove(grace_s=1)
    await one.remove(grace_s=1)
    assert engine.containers == {}
    assert await one.exited() == 0


async def test_what_a_container_printed_is_quoted_and_cut() -> None:
    engine = EngineInMemory()
    engine.log = b"x" * 100_000 + b"\n[W 2026-11-30 JupyterHub] forged\x1b[2J\r[E] too\n\xff"
    said = (await workload(engine).last_words()).split("\n")
    assert len(said[0]) < 8200
    assert said[1:] == [
        "  | [W 2026-11-30 JupyterHub] forged?[2J",
        "  | [E] too",
        "  | \N{REPLACEMENT CHARACTER}",
    ]


async def test_a_leftover_of_the_same_lease_is_replaced() -> None:
    engine = EngineInMemory()
    old = engine.add("allotment-feedbeef-l1", running=True)
    one = workload(engine)
    await one.make()
    assert list(engine.containers) != [old]
    assert len(engine.containers) == 1


async def test_another_s_container_of_that_name_is_left_alone() -> None:
    engine = EngineInMemory()
    theirs = engine.add("allotment-feedbeef-l1", labels={}, running=True)
    one = workload(engine)
    with pytest.raises(EngineUnavailable, match="did not make"):
        await one.make()
    await one.remove(grace_s=0)
    assert list(engine.containers) == [theirs]


async def test_a_cancelled_create_is_removed_once_its_thread_is_done() -> None:
    engine = EngineInMemory()
    engine.slow.clear()
    one = workload(engine)
    making = asyncio.create_task(one.make())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    removing = asyncio.create_task(one.remove(grace_s=0))
    await asyncio.sleep(0)
    engine.slow.set()
    await removing
    assert engine.containers == {}
    assert "remove_container" in engine.calls


async def test_an_older_attempt_never_removes_the_newer_s_container() -> None:
    engine = EngineInMemory()
    older, newer = workload(engine), workload(engine)
    await older.make()
    await newer.make()
    await older.remove(grace_s=0)
    assert list(engine.containers) == [newer.container_id]


async def test_only_404_means_gone() -> None:
    engine = EngineInMemory()
    engine.add("allotment-feedbeef-l1", running=True)
    found = workload(engine, create=False)
    for error in (api_error(500), ConnectionLost("no dockerd"), OSError("socket")):
        engine.fail["inspect_container"] = [error]
        with pytest.raises(EngineUnavailable):
            await found.exited()
    assert await found.exited() is None
    engine.fail["remove_container"] = [api_error(500)]
    with pytest.raises(EngineUnavailable):
        await found.remove(grace_s=0)
    assert len(engine.containers) == 1


async def test_a_removal_in_progress_is_waited_for() -> None:
    engine = EngineInMemory()
    engine.add("allotment-feedbeef-l1", running=True)
    found = workload(engine, create=False)
    engine.fail["remove_container"] = [api_error(409)]
    removing = asyncio.create_task(found.remove(grace_s=0))
    while engine.calls.count("inspect_container") < 2:  # noqa: ASYNC110 - a turn of the loop, no clock
        await asyncio.sleep(0)
    engine.containers.clear()
    await removing


async def test_missing_image_and_refused_start_are_refusals() -> None:
    engine = EngineInMemory()
    engine.fail["create_container"] = [ImageNotFound("no image", response=Mock(status_code=404))]
    one = workload(engine)
    with pytest.raises(EnvironmentUnavailable):
        await one.make()
    await one.remove(grace_s=0)
    other = workload(engine)
    await other.make()
    engine.fail["start"] = [api_error(500)]
    with pytest.raises(StartFailed, match="engine says no"):
        await other.start()


async def test_every_way_to_a_device_is_seen() -> None:
    engine = EngineInMemory()
    requests = [{"Driver": "nvidia", "DeviceIDs": ["MIG-1"]}]
    engine.add(
        "allotment-feedbeef-l1", host={"DeviceRequests": requests}, env=["NVIDIA_VISIBLE_DEVICES=MIG-1"]
    )
    assert await workload(engine, create=False).devices() == ("MIG-1",)
    extra = {"DeviceRequests": requests, "Devices": [{"PathOnHost": "/dev/nvidia0"}], "Privileged": True}
    engine.add("allotment-feedbeef-l2", host=extra, env=["NVIDIA_VISIBLE_DEVICES=all"])
    seen = await workload(engine, "allotment-feedbeef-l2", create=False).devices()
    assert set(seen) == {"MIG-1", "/dev/nvidia0", "all", "every device (privileged)"}
    engine.add("allotment-feedbeef-l3", env=["NVIDIA_VISIBLE_DEVICES=void"])
    assert await workload(engine, "allotment-feedbeef-l3", create=False).devices() == ()
