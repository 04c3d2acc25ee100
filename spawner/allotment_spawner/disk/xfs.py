"""XFS project quotas: a project id on the folder, its limit by xfs_quota."""

from __future__ import annotations

from pathlib import Path

from allotment_spawner.disk.mounts import Mount
from allotment_spawner.disk.projects import LEAKS, ProjectIds, project_of, put_project
from allotment_spawner.disk.tools import Run, run_tool

__all__ = ["XfsQuota"]

_ON = frozenset({"prjquota", "pquota"})
_BLOCK = 1024


class XfsQuota:
    """Limits of folders on one XFS file system that is mounted with `prjquota`."""

    name = "xfs"
    watch = True
    note: str | None = LEAKS

    def __init__(self, *, mount: Mount, ids: ProjectIds, run: Run = run_tool) -> None:
        self._mount = mount
        self._ids = ids
        self._run = run

    @staticmethod
    def works_on(mount: Mount) -> str | None:
        """None when project quotas are on; else why not, with the remedy."""
        if mount.options & _ON:
            return None
        return f"{mount.point} is XFS without project quotas; mount it with the option prjquota."

    def make(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)

    def limit(self, folder: Path, descriptor: int, limit_bytes: int | None) -> bool:
        if limit_bytes is None and self._ids.known(folder) is None:
            return False
        project = self._ids.of(folder)
        put_project(descriptor, project)
        blocks = -(-(limit_bytes or 0) // _BLOCK)  # no limit is 0
        self._ask(f"limit -p bsoft=0 bhard={blocks}k {project}")
        return limit_bytes is not None

    def usage(self, folder: Path, descriptor: int) -> tuple[int | None, int | None, int | None]:
        project = self._ids.known(folder)
        if project is None or project_of(descriptor) != project:
            return None, None, None
        used, limit = self._counted(self._ask(f"quota -p -N -n -v -b {project}"))
        files, _ = self._counted(self._ask(f"quota -p -N -n -v -i {project}"))
        return (
            None if used is None else used * _BLOCK,
            files,
            None if not limit else limit * _BLOCK,
        )

    def remove(self, folder: Path) -> bool:
        project = self._ids.known(folder)
        if project is not None:
            self._ask(f"limit -p bsoft=0 bhard=0 {project}")
            self._ids.forget(folder)
        return False

    def tidy(self) -> None:
        return None

    def _ask(self, command: str) -> str:
        return self._run(["xfs_quota", "-x", "-c", command, self._mount.point])

    @staticmethod
    def _counted(text: str) -> tuple[int | None, int | None]:
        """(used, hard limit) of `FILESYSTEM USED SOFT HARD …`; a long device name has a line of its own."""
        words = text.split()
        numbers = [word for word in words if word.isdigit()]
        if len(numbers) < 3:
            return None, None
        return int(numbers[0]), int(numbers[2])
