"""Control groups of a thousand containers: the kernel's own where root may make them, else recorded files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from allotment_spawner.engines.base import Workload
from allotment_spawner.engines.cgroups import Cgroups

__all__ = ["Groups", "made_groups"]

_KERNEL = Path("/sys/fs/cgroup")
_NET = (
    "Inter-|   Receive                                                |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo\n"
    "    lo:  900       9    0    0    0     0          0         0      900       9    0    0    0\n"
    "  eth0: 1182      13    0    0    0     0          0         0      266       3    0    0    0\n"
)
_RECORDED = {
    "cpu.stat": "usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\n",
    "memory.current": "300000000\n",
    "memory.stat": "".join(f"field_{number} {number * 4096}\n" for number in range(40))
    + "inactive_file 4096\n",
    "memory.max": "4294967296\n",
    "io.stat": "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n",
}


@dataclass(frozen=True, slots=True)
class Groups:
    """`kind` says whose files these are."""

    kind: str
    cgroups: Cgroups
    workloads: Sequence[Workload]


@contextlib.contextmanager
def made_groups(folder: Path, leases: Sequence[str], name: str) -> Iterator[Groups]:
    """One group for each lease, all gone afterwards. /proc is `folder`'s own: the groups hold no process."""
    ids = [f"{number:064x}" for number in range(1, len(leases) + 1)]
    workloads = [
        Workload(f"ref-{number}", "0123abcd", lease, "ada", "", "running", (), (number,), container_id=one)
        for number, (lease, one) in enumerate(zip(leases, ids, strict=True), start=1)
    ]
    with contextlib.ExitStack() as stack:
        hierarchies = [_KERNEL / part for part in ("cpuacct", "memory", "blkio")]
        try:
            for hierarchy in hierarchies:
                _make(stack, hierarchy / name, ids)
            kind, root, lines = (
                "the kernel's, version 1",
                _KERNEL,
                "3:cpuacct:{0}\n2:memory:{0}\n1:blkio:{0}\n",
            )
        except OSError:
            kind, root, lines = "recorded files, version 2", folder / "cgroup", "0::{0}\n"
            for one in ids:
                _write(root / name / one, _RECORDED)
        for workload in workloads:
            text = lines.format(f"/{name}/{workload.container_id}")
            _write(folder / "proc" / str(workload.pids[0]), {"cgroup": text})
            _write(folder / "proc" / str(workload.pids[0]) / "net", {"dev": _NET})
        yield Groups(kind, Cgroups(proc=folder / "proc", root=root), workloads)


def _make(stack: contextlib.ExitStack, parent: Path, ids: Sequence[str]) -> None:
    if not parent.parent.is_dir():
        raise FileNotFoundError(parent.parent)
    for path in (parent, *(parent / one for one in ids)):
        path.mkdir()
        stack.callback(path.rmdir)


def _write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
