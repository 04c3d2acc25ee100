"""ZFS project quotas, by the commands `zfs` and `zpool`."""

from __future__ import annotations

import os
from pathlib import Path

from allotment_spawner.disk.base import ToolFailed
from allotment_spawner.disk.mounts import Mount
from allotment_spawner.disk.projects import LEAKS, ProjectIds
from allotment_spawner.disk.tools import Run, run_tool
from allotment_spawner.disk.walk import names_in

__all__ = ["ZfsQuota"]

_USABLE = frozenset({"enabled", "active"})


class ZfsQuota:
    """Limits of folders on one ZFS dataset; its pool needs the feature project_quota (OpenZFS 0.8)."""

    name = "zfs"
    watch = True
    note: str | None = LEAKS

    def __init__(self, *, mount: Mount, ids: ProjectIds, run: Run = run_tool) -> None:
        self._dataset = mount.source
        self._ids = ids
        self._run = run

    @staticmethod
    def works_on(mount: Mount, run: Run = run_tool) -> str | None:
        """None when project quotas can be used; else why not, with the remedy."""
        pool = mount.source.split("/", 1)[0]
        try:
            said = run(["zpool", "get", "-H", "-o", "value", "feature@project_quota", pool]).strip()
        except ToolFailed as error:
            return f"Quotas of the pool {pool} cannot be used: {error}"
        if said in _USABLE:
            return None
        return f"The pool {pool} has no project quotas ({said}); zpool upgrade {pool} adds them."

    def make(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)

    def limit(self, folder: Path, descriptor: int, limit_bytes: int | None) -> bool:
        if limit_bytes is None and self._ids.known(folder) is None:
            return False
        project = self._ids.of(folder)
        # through our descriptor, so that nobody can put a link in its place meanwhile
        there = f"/proc/{os.getpid()}/fd/{descriptor}"
        options = ["-s", "-p", str(project)] + (["-r"] if names_in(descriptor) else [])
        self._run(["zfs", "project", *options, there])
        self._set(project, limit_bytes)
        return limit_bytes is not None

    def usage(self, folder: Path, descriptor: int) -> tuple[int | None, int | None, int | None]:
        project = self._ids.known(folder)
        if project is None:
            return None, None, None
        said = self._run(["zfs", "projectspace", "-H", "-p", "-o", "name,used,quota,objused", self._dataset])
        for line in said.splitlines():
            words = line.split("\t")
            if len(words) == 4 and words[0].strip() == str(project):
                used, limit, files = (_number(word) for word in words[1:])
                return used, files, limit or None
        return None, None, None

    def remove(self, folder: Path) -> bool:
        project = self._ids.known(folder)
        if project is not None:
            self._set(project, None)
            self._ids.forget(folder)
        return False

    def tidy(self) -> None:
        return None

    def _set(self, project: int, limit_bytes: int | None) -> None:
        value = "none" if limit_bytes is None else str(limit_bytes)
        self._run(["zfs", "set", f"projectquota@{project}={value}", self._dataset])


def _number(word: str) -> int | None:
    return int(word) if word.strip().isdigit() else None
