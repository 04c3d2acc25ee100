"""Stand-ins for xfs_quota, zfs and zpool, as strict with their arguments as the commands' manuals are."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from allotment_spawner.disk.base import ToolFailed
from allotment_spawner.disk.projects import project_of
from allotment_spawner.disk.walk import open_folder, walk

__all__ = ["XfsQuotaStandIn", "ZfsStandIn"]

_SIZES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}


@dataclass
class XfsQuotaStandIn:
    """`xfs_quota -x -c COMMAND MOUNT`: counts by the project ids that are really on the files; limits are
    only remembered, since this kernel may have no XFS quota."""

    point: Path
    limits: dict[int, int] = field(default_factory=dict)
    broken: bool = False

    def __call__(self, argv: Sequence[str]) -> str:
        if self.broken:
            raise ToolFailed("xfs_quota failed: cannot set limits: Function not implemented.")
        match list(argv):
            case ["xfs_quota", "-x", "-c", command, point] if point == str(self.point):
                return self._do(command)
        raise AssertionError(f"xfs_quota has no such arguments: {argv}")

    def _do(self, command: str) -> str:
        if found := re.fullmatch(r"limit -p bsoft=0 bhard=(\d+)([kmg]?) (\d+)", command):
            self.limits[int(found[3])] = int(found[1]) * _SIZES[found[2]]
            return ""
        if found := re.fullmatch(r"quota -p -N -n -v -([bi]) (\d+)", command):
            project = int(found[2])
            used, files = self._count(project)
            number = used // 1024 if found[1] == "b" else files
            hard = self.limits.get(project, 0) // 1024 if found[1] == "b" else 0
            # a long device name has a line of its own, as in the real command
            return f"/dev/mapper/vg0-a_long_name\n{'':20} {number:10} {0:10} {hard:10}   00 [--------] /m\n"
        raise AssertionError(f"xfs_quota has no such command: {command}")

    def _count(self, project: int) -> tuple[int, int]:
        top = open_folder(self.point)
        used = files = 0
        try:
            for inside, name, found in walk(top):
                try:
                    entry = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=inside)
                except OSError:
                    continue  # a link
                try:
                    if project_of(entry) == project:
                        used, files = used + found.st_blocks * 512, files + 1
                finally:
                    os.close(entry)
        finally:
            os.close(top)
        return used, files


@dataclass
class ZfsStandIn:
    """`zfs project`, `zfs set projectquota@ID`, `zfs projectspace` and `zpool get` on one dataset."""

    dataset: str
    feature: str = "active"
    folders: dict[int, Path] = field(default_factory=dict)
    quotas: dict[int, int] = field(default_factory=dict)
    recursive: list[bool] = field(default_factory=list)

    def __call__(self, argv: Sequence[str]) -> str:
        pool = self.dataset.split("/")[0]
        match list(argv):
            case ["zpool", "get", "-H", "-o", "value", "feature@project_quota", name] if name == pool:
                return f"{self.feature}\n"
            case ["zfs", "project", "-s", "-p", project, *rest, path] if rest in ([], ["-r"]):
                real = Path(os.path.realpath(path))
                assert real.is_dir()
                self.folders[int(project)] = real
                self.recursive.append(bool(rest))
                return ""
            case ["zfs", "set", setting, name] if name == self.dataset:
                found = re.fullmatch(r"projectquota@(\d+)=(none|\d+)", setting)
                assert found, setting
                self.quotas[int(found[1])] = 0 if found[2] == "none" else int(found[2])
                return ""
            case ["zfs", "projectspace", "-H", "-p", "-o", "name,used,quota,objused", name]:
                assert name == self.dataset
                rows = [f"{one}\t1048576\t{self.quotas.get(one, 0) or 'none'}\t7" for one in self.folders]
                return "".join(f"{row}\n" for row in ["0\t512\tnone\t1", *rows])
        raise ToolFailed(f"{argv[0]} failed: invalid arguments {argv[1:]}.")
