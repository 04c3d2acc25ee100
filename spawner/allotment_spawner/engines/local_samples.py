"""How hard the processes of local sessions work, from the process file system."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from allotment_spawner.core.samples import WorkloadSample
from allotment_spawner.engines.base import Workload

__all__ = ["LocalSampler"]

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class _Counted:
    cpu_s: float
    memory_bytes: int | None
    read_bytes: int | None
    write_bytes: int | None
    ended: bool


class LocalSampler:
    """Sums over the processes that the engine saw last. CPU time and disk bytes hold those of children that
    ended and were waited for; memory is what belongs to no file, so that shared libraries count nowhere.

    The network is everybody's on this machine, and there is no limit of memory: both are unknown.
    """

    def __init__(self, *, proc: Path = Path("/proc"), uid: int | None = None) -> None:
        self._proc = proc
        self._uid = os.getuid() if uid is None else uid
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="local-samples")

    async def sample(self, workloads: Sequence[Workload]) -> Mapping[str, WorkloadSample]:
        return await asyncio.get_running_loop().run_in_executor(self._reader, self._sample, workloads)

    def close(self) -> None:
        self._reader.shutdown(wait=False, cancel_futures=True)

    def _sample(self, workloads: Sequence[Workload]) -> dict[str, WorkloadSample]:
        samples = {}
        for workload in workloads:
            counted = [one for pid in workload.pids if (one := self._process(pid)) is not None]
            if workload.lease is not None and not all(one.ended for one in counted):
                samples[workload.lease] = _together(workload.lease, counted)
        return samples

    def _process(self, pid: int) -> _Counted | None:
        """None when it is gone, or another user's that got its pid."""
        folder = self._proc / str(pid)
        try:
            if folder.stat().st_uid != self._uid:
                return None
            stat, status = (folder / "stat").read_bytes(), (folder / "status").read_bytes()
        except OSError:
            return None
        fields = stat[stat.rindex(b")") + 2 :].split()
        # one that nobody waited for yet holds no memory any more
        ended = fields[0] in {b"Z", b"X"}
        memory = [0] if ended else _values(status, (b"RssAnon:", b"RssShmem:"))
        disk = self._disk(folder)
        return _Counted(
            cpu_s=sum(int(one) for one in fields[11:15]) / _TICKS,
            memory_bytes=None if memory is None else 1024 * sum(memory),
            read_bytes=None if disk is None else disk[0],
            write_bytes=None if disk is None else disk[1],
            ended=ended,
        )

    def _disk(self, folder: Path) -> list[int] | None:
        """None where the kernel does not count it, or does not tell."""
        try:
            return _values((folder / "io").read_bytes(), (b"read_bytes:", b"write_bytes:"))
        except OSError:
            return None


def _values(text: bytes, names: Sequence[bytes]) -> list[int] | None:
    """The numbers of these lines; None unless all are there."""
    lines = [line.split() for line in text.splitlines() if line.startswith(tuple(names))]
    found = {line[0]: int(line[1]) for line in lines}
    return [found[name] for name in names] if len(found) == len(names) else None


def _together(lease: str, counted: Sequence[_Counted]) -> WorkloadSample:
    return WorkloadSample(
        lease=lease,
        cpu_s=sum(one.cpu_s for one in counted),
        memory_used_bytes=_sum([one.memory_bytes for one in counted]),
        disk_read_bytes=_sum([one.read_bytes for one in counted]),
        disk_write_bytes=_sum([one.write_bytes for one in counted]),
        read_s=time.monotonic(),
        processes=sum(not one.ended for one in counted),
    )


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
