"""What the kernel counts for one container: its control group (version 1 or 2) and its network."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Cgroups", "Counted", "Folders"]

_UNLIMITED = 1 << 60
"""Version 1 says "no limit" as a number larger than any memory."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Counters since the container's start; None is unknown."""

    cpu_s: float | None = None
    memory_used_bytes: int | None = None
    """Without file cache that was not used lately, which the kernel gives back first."""
    memory_limit_bytes: int | None = None
    disk_read_bytes: int | None = None
    disk_write_bytes: int | None = None
    network_rx_bytes: int | None = None
    network_tx_bytes: int | None = None
    read_s: float | None = None
    """When, in monotonic seconds."""


@dataclass(frozen=True, slots=True)
class Folders:
    """Where one container's group lies: `unified` in version 2, else one folder for each controller."""

    unified: Path | None
    cpu: Path | None = None
    memory: Path | None = None
    disk: Path | None = None


class Cgroups:
    """`proc` and `root` are this host's. Nothing here asks anybody, so a thousand containers are cheap."""

    def __init__(self, *, proc: Path = Path("/proc"), root: Path = Path("/sys/fs/cgroup")) -> None:
        self._proc = proc
        self._root = root

    def find(self, pids: Iterable[int], container_id: str) -> Folders | None:
        """The group of this container, by one of its processes; None where it cannot be seen."""
        for pid in pids:
            folders = self._folders(pid, container_id)
            if folders is not None:
                return folders
        return None

    def read(self, folders: Folders) -> Counted | None:
        """None once the group is gone."""
        counted = _unified(folders.unified) if folders.unified else _by_controller(folders)
        return None if counted.cpu_s is None and counted.memory_used_bytes is None else counted

    def network(self, pids: Iterable[int], container_id: str) -> tuple[int, int] | None:
        """(received, sent) bytes of all interfaces but loopback; None where it cannot be seen."""
        for pid in pids:
            text = _read(self._proc / str(pid) / "net" / "dev")
            # only now is it sure whose network that was: the pid may have been given away again
            if text is not None and self._paths(pid, container_id):
                return _interfaces(text)
        return None

    def _folders(self, pid: int, container_id: str) -> Folders | None:
        paths = self._paths(pid, container_id)
        if "" in paths:
            unified = self._root / paths[""]
            if (unified / "memory.current").exists():
                return Folders(unified)
        cpu, memory, disk = (
            self._root / name / paths[name] if name in paths else None
            for name in ("cpuacct", "memory", "blkio")
        )
        return None if cpu is None and memory is None else Folders(None, cpu, memory, disk)

    def _paths(self, pid: int, container_id: str) -> dict[str, str]:
        """Controller ("" is version 2) -> the container's own group; empty where it is another's."""
        found = {}
        for line in (_read(self._proc / str(pid) / "cgroup") or b"").decode(errors="replace").splitlines():
            _, controllers, path = line.split(":", 2)
            # what runs inside may have made groups of its own below
            at = path.find(container_id)
            if at >= 0 and ".." not in path:
                end = path.find("/", at)
                own = (path if end < 0 else path[:end]).lstrip("/")
                found.update(dict.fromkeys(controllers.split(","), own))
        return found


def _unified(folder: Path) -> Counted:
    disk, memory = _read(folder / "io.stat"), _read(folder / "memory.current")
    used_us = _value(_read(folder / "cpu.stat"), b"usage_usec")
    return Counted(
        cpu_s=None if used_us is None else used_us / 1e6,
        memory_used_bytes=_used(memory, _read(folder / "memory.stat"), b"inactive_file"),
        memory_limit_bytes=_number(_read(folder / "memory.max")),
        disk_read_bytes=_summed(disk, b"rbytes="),
        disk_write_bytes=_summed(disk, b"wbytes="),
    )


def _by_controller(folders: Folders) -> Counted:
    used_ns = _number(_read(folders.cpu / "cpuacct.usage")) if folders.cpu else None
    usage = stat = limit = disk = None
    if folders.memory:
        usage, stat = _read(folders.memory / "memory.usage_in_bytes"), _read(folders.memory / "memory.stat")
        limit = _number(_read(folders.memory / "memory.limit_in_bytes"))
    if folders.disk:
        disk = _read(folders.disk / "blkio.throttle.io_service_bytes_recursive")
        # newer kernels count in version 1 only where a limit is set: then there is nothing but "Total 0"
        disk = disk if disk is not None and b"Read " in disk else None
    return Counted(
        cpu_s=None if used_ns is None else used_ns / 1e9,
        memory_used_bytes=_used(usage, stat, b"total_inactive_file"),
        memory_limit_bytes=None if limit is None or limit >= _UNLIMITED else limit,
        disk_read_bytes=_summed(disk, b"Read "),
        disk_write_bytes=_summed(disk, b"Write "),
    )


def _read(path: Path) -> bytes | None:
    """Whole; None when it cannot be read. By os.open: a round of 1,000 containers reads 7,000 files."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        parts = []
        while part := os.read(handle, 65536):
            parts.append(part)
        return b"".join(parts)
    except OSError:
        return None
    finally:
        os.close(handle)


def _number(text: bytes | None) -> int | None:
    """None also for "max"."""
    stripped = (text or b"").strip()
    return int(stripped) if stripped.isdigit() else None


def _value(text: bytes | None, name: bytes) -> int | None:
    """Of a line `name value`."""
    for line in (text or b"").splitlines():
        if line.startswith(name + b" "):
            return _number(line[len(name) :])
    return None


def _used(usage: bytes | None, stat: bytes | None, cache: bytes) -> int | None:
    whole, given_back = _number(usage), _value(stat, cache)
    return None if whole is None or given_back is None else max(0, whole - given_back)


def _summed(text: bytes | None, mark: bytes) -> int | None:
    """The numbers after each `mark`, one a device. In version 2 a container that used no disk has no line."""
    if text is None:
        return None
    total = 0
    for piece in text.split(mark)[1:]:
        total += _number(piece.split(None, 1)[0]) or 0
    return total


def _interfaces(text: bytes) -> tuple[int, int]:
    received = sent = 0
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(b":")
        fields = rest.split()
        if name.strip() != b"lo" and len(fields) >= 9:
            received, sent = received + int(fields[0]), sent + int(fields[8])
    return received, sent
