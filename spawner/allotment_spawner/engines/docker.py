"""Workloads as containers of a Docker engine, told apart by label and name."""

from __future__ import annotations

import asyncio
import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, TypeVar

import docker
from docker.errors import APIError, DockerException, NotFound
from requests.exceptions import RequestException

from allotment_spawner.core.errors import EngineUnavailable
from allotment_spawner.engines.base import Workload
from allotment_spawner.engines.procfs import pids_by_container
from allotment_spawner.launch.container import requested_devices
from allotment_spawner.launch.names import LABEL_INSTALLATION, LABEL_SERVER, LABEL_USER, lease_of_name

__all__ = ["DockerEngine"]

T = TypeVar("T")
_EXITED = re.compile(r"^Exited \((-?\d+)\)")
_STATES: dict[str, Literal["created", "running", "exited"]] = {
    "created": "created",
    "running": "running",
    "paused": "running",
    "restarting": "running",
    "removing": "exited",
    "exited": "exited",
    "dead": "exited",
}


class DockerEngine:
    """Sees and ends the containers of one installation; `engine_ref` is the container's name.

    Only what bears our label is seen, only what bears our label AND our name is removed. A 404 is
    gone; everything else that is not an answer is `EngineUnavailable`. `deadline_s` bounds every
    call to the engine; calls run on the engine's own threads (`executor`), so that a slow pull or
    a stuck daemon delays nobody else. `proc` is this host's, for the containers' pids.
    """

    name = "docker"
    places = True

    def __init__(
        self,
        *,
        installation: str,
        base_url: str = "unix:///var/run/docker.sock",
        deadline_s: float = 10.0,
        executor: Executor | None = None,
        proc: Path = Path("/proc"),
        client_factory: Callable[[], Any] | None = None,
    ) -> None:
        self._installation = installation
        self._deadline_s = deadline_s
        self._executor = executor or ThreadPoolExecutor(max_workers=8, thread_name_prefix="docker-engine")
        self._proc = proc
        self._connect = client_factory or (lambda: docker.APIClient(base_url=base_url, timeout=deadline_s))
        self._clients = threading.local()
        self._opened: list[Any] = []
        self._devices: dict[str, tuple[str, ...]] = {}

    async def check(self) -> None:
        await self._call(lambda client: client.ping(), self._deadline_s)

    async def observe(self) -> Sequence[Workload]:
        return await self._call(self._observe, self._deadline_s)

    async def data_root(self) -> Path | None:
        """Where the engine keeps images and volumes; None when that is no folder of this machine."""
        info = await self._call(lambda client: client.info(), self._deadline_s)
        root = Path(str(info.get("DockerRootDir") or "/nonexistent"))
        return root if root.exists() else None

    async def stop(self, engine_ref: str, *, grace_s: float) -> None:
        await self._call(
            lambda client: self._stop(client, engine_ref, grace_s), grace_s + 3 * self._deadline_s
        )

    def close(self) -> None:
        """Give the threads and connections back; a call that hangs is left behind."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        for client in self._opened:
            client.close()

    async def _call(self, work: Callable[[Any], T], limit_s: float) -> T:
        def run() -> T:
            return work(self._client())

        try:
            future = asyncio.get_running_loop().run_in_executor(self._executor, run)
            return await asyncio.wait_for(future, limit_s + 1)
        except (DockerException, RequestException, TimeoutError, OSError) as error:
            raise EngineUnavailable(
                f"Docker does not answer: {_reason(error)}.",
                "Sessions go on meanwhile. See whether the Docker service runs, and try again.",
            ) from error

    def _client(self) -> Any:
        """One client a thread: a requests session is not made for several."""
        client = getattr(self._clients, "client", None)
        if client is None:
            client = self._clients.client = self._connect()
            self._opened.append(client)
        return client

    def _observe(self, client: Any) -> list[Workload]:
        label = f"{LABEL_INSTALLATION}={self._installation}"
        listed = client.containers(all=True, filters={"label": [label]})
        pids = pids_by_container(self._proc) if listed else {}
        workloads = []
        for entry in listed:
            devices = self._devices_of(client, entry["Id"])
            if devices is not None:
                workloads.append(self._workload(entry, devices, tuple(sorted(pids.get(entry["Id"], ())))))
        self._devices = {entry["Id"]: self._devices.get(entry["Id"], ()) for entry in listed}
        return sorted(workloads, key=lambda one: one.engine_ref)

    def _devices_of(self, client: Any, container_id: str) -> tuple[str, ...] | None:
        """Asked once a container: its request can't change. None: it went away since it was listed."""
        known = self._devices.get(container_id)
        if known is None:
            try:
                known = requested_devices(client.inspect_container(container_id))
            except NotFound:
                return None
            self._devices[container_id] = known
        return known

    def _workload(
        self, entry: Mapping[str, Any], devices: tuple[str, ...], pids: tuple[int, ...]
    ) -> Workload:
        labels = entry.get("Labels") or {}
        name = str((entry.get("Names") or [entry["Id"]])[0]).removeprefix("/")
        # An unknown word of a newer engine counts as running: what is unknown is not gone.
        state = _STATES.get(entry.get("State", ""), "running")
        exited = _EXITED.match(entry.get("Status", ""))
        return Workload(
            engine_ref=name,
            installation=self._installation,
            lease=lease_of_name(name, self._installation),
            user=labels.get(LABEL_USER),
            server=labels.get(LABEL_SERVER),
            state=state,
            devices=devices,
            pids=pids,
            exit_code=int(exited.group(1)) if exited and state == "exited" else None,
            container_id=entry["Id"],
        )

    def _stop(self, client: Any, engine_ref: str, grace_s: float) -> None:
        try:
            found = client.inspect_container(engine_ref)
        except NotFound:
            return
        self._refuse_foreign(found, engine_ref)
        # by id from here on: the name may be given to another container while we wait
        container_id = found["Id"]
        try:
            client.stop(container_id, timeout=math.ceil(grace_s))
            client.remove_container(container_id, force=True, v=True)
        except NotFound:
            return
        except APIError as error:
            if error.status_code != 409:
                raise
            # somebody else's removal of the same container is in progress
            self._await_gone(client, container_id)

    def _refuse_foreign(self, found: Mapping[str, Any], engine_ref: str) -> None:
        labels = (found.get("Config") or {}).get("Labels") or {}
        name = str(found.get("Name", ""))
        ours = labels.get(LABEL_INSTALLATION) == self._installation
        if not ours or lease_of_name(name, self._installation) is None:
            raise EngineUnavailable(
                f"Container {engine_ref} is not one that Allotment made; it was left alone.",
                "Remove it by hand if it is not needed.",
            )

    def _await_gone(self, client: Any, container_id: str) -> None:
        try:
            client.wait(container_id, condition="removed", timeout=self._deadline_s)
        except NotFound:
            return


def _reason(error: BaseException) -> str:
    if isinstance(error, APIError) and error.explanation:
        return str(error.explanation).strip().rstrip(".")
    if isinstance(error, TimeoutError):
        return "it took too long"
    text = str(error).splitlines()
    return (text[0][:200] if text else type(error).__name__).rstrip(".")
