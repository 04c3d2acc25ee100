"""How hard containers work: from the kernel's own files where they can be read, else from Docker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import fields, replace
from typing import Any

import docker
from docker.errors import DockerException, NotFound
from requests.exceptions import RequestException

from allotment_spawner.core.errors import EngineUnavailable
from allotment_spawner.core.samples import WorkloadSample
from allotment_spawner.engines.base import Workload
from allotment_spawner.engines.cgroups import Cgroups, Counted, Folders

__all__ = ["DockerSampler", "added", "counted_by_docker"]

_AT_ONCE = 4
_NONSENSE = (AttributeError, KeyError, TypeError, ValueError)
"""An answer of another shape than is documented tells nothing; those of others still count."""


class DockerSampler:
    """Has threads and connections of its own: whoever starts and stops containers never waits for it.

    `deadline_s` bounds one round; containers that Docker did not tell of by then are left out.
    """

    def __init__(
        self,
        *,
        base_url: str = "unix:///var/run/docker.sock",
        deadline_s: float = 3.0,
        cgroups: Cgroups | None = None,
        client_factory: Callable[[], Any] | None = None,
    ) -> None:
        self._deadline_s = deadline_s
        self._cgroups = cgroups or Cgroups()
        self._connect = client_factory or (lambda: docker.APIClient(base_url=base_url, timeout=deadline_s))
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="docker-samples")
        self._askers = ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="docker-stats")
        self._clients = threading.local()
        self._opened: list[Any] = []
        self._folders: dict[str, Folders] = {}

    async def sample(self, workloads: Sequence[Workload]) -> Mapping[str, WorkloadSample]:
        return await asyncio.get_running_loop().run_in_executor(self._reader, self._sample, workloads)

    def close(self) -> None:
        """Give the threads and connections back; a call that hangs is left behind."""
        for pool in (self._reader, self._askers):
            pool.shutdown(wait=False, cancel_futures=True)
        for client in self._opened:
            client.close()

    def _sample(self, workloads: Sequence[Workload]) -> dict[str, WorkloadSample]:
        until = time.monotonic() + self._deadline_s
        samples: dict[str, WorkloadSample] = {}
        asked: dict[Future[Counted | None], Workload] = {}
        for workload in workloads:
            counted = self._from_files(workload)
            if counted is None:
                asked[self._askers.submit(self._from_docker, workload.engine_ref)] = workload
            else:
                _put(samples, workload, counted)
        done, late = wait_for(asked, timeout=max(0.0, until - time.monotonic()))
        for future in late:
            future.cancel()
        silent = len(late)
        for future in done:
            try:
                found = future.result()
            except (DockerException, RequestException, OSError, *_NONSENSE):
                silent += 1
                continue
            if found is not None:
                _put(samples, asked[future], found)
        kept = {one.container_id for one in workloads}
        self._folders = {one: folders for one, folders in self._folders.items() if one in kept}
        if silent and silent == len(workloads):
            raise EngineUnavailable("Docker does not tell how hard containers work.", "It is asked again.")
        return samples

    def _from_files(self, workload: Workload) -> Counted | None:
        """None where the kernel's files cannot be read from here."""
        container_id = workload.container_id
        if container_id is None or not workload.pids:
            return None
        folders = self._folders.get(container_id) or self._cgroups.find(workload.pids, container_id)
        counted = None if folders is None else self._cgroups.read(folders)
        if folders is None or counted is None:
            self._folders.pop(container_id, None)
            return None
        self._folders[container_id] = folders
        read_s = time.monotonic()
        received, sent = self._cgroups.network(workload.pids, container_id) or (None, None)
        return replace(counted, network_rx_bytes=received, network_tx_bytes=sent, read_s=read_s)

    def _from_docker(self, engine_ref: str) -> Counted | None:
        """None when it is gone."""
        try:
            counted = counted_by_docker(self._client().stats(engine_ref, stream=False, one_shot=True))
            return replace(counted, read_s=time.monotonic())
        except NotFound:
            return None

    def _client(self) -> Any:
        """One client a thread: a requests session is not made for several."""
        client = getattr(self._clients, "client", None)
        if client is None:
            client = self._clients.client = self._connect()
            self._opened.append(client)
        return client


def _put(samples: dict[str, WorkloadSample], workload: Workload, counted: Counted) -> None:
    lease = workload.lease
    if lease is None:
        return
    values = {one.name: getattr(counted, one.name) for one in fields(Counted)}
    # Docker's own number is of threads; these are the processes that the engine just saw
    sample = WorkloadSample(lease=lease, processes=len(workload.pids) or None, **values)
    samples[lease] = added(samples[lease], sample) if lease in samples else sample


def added(one: WorkloadSample, other: WorkloadSample) -> WorkloadSample:
    """Two workloads of one lease together; what is unknown of either is unknown."""
    names = (field.name for field in fields(WorkloadSample) if field.name not in ("lease", "read_s"))
    pairs = {name: (getattr(one, name), getattr(other, name)) for name in names}
    sums = {name: None if None in pair else sum(pair) for name, pair in pairs.items()}
    return WorkloadSample(lease=one.lease, read_s=other.read_s, **sums)


def counted_by_docker(stats: Mapping[str, Any]) -> Counted:
    """From the answer of `GET containers/{id}/stats`, of control groups of either version.

    Source: https://docs.docker.com/reference/api/engine/version/v1.41/#tag/Container/operation/ContainerStats
    """
    memory = stats.get("memory_stats") or {}
    details = memory.get("stats") or {}
    usage, cache = memory.get("usage"), details.get("total_inactive_file", details.get("inactive_file"))
    networks = stats.get("networks")
    disk = (stats.get("blkio_stats") or {}).get("io_service_bytes_recursive")
    used_ns = ((stats.get("cpu_stats") or {}).get("cpu_usage") or {}).get("total_usage")
    return Counted(
        cpu_s=None if used_ns is None else used_ns / 1e9,
        memory_used_bytes=None if usage is None or cache is None else max(0, usage - cache),
        memory_limit_bytes=memory.get("limit"),
        disk_read_bytes=_of_disks(disk, "read"),
        disk_write_bytes=_of_disks(disk, "write"),
        network_rx_bytes=None if networks is None else sum(one["rx_bytes"] for one in networks.values()),
        network_tx_bytes=None if networks is None else sum(one["tx_bytes"] for one in networks.values()),
    )


def _of_disks(found: Sequence[Mapping[str, Any]] | None, what: str) -> int | None:
    """None where nothing is listed: nothing was used, or nothing is counted."""
    if not found:
        return None
    return sum(int(one["value"]) for one in found if str(one.get("op", "")).lower() == what)
