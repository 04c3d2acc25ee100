"""btrfs quota groups: each folder is a subvolume with a limit."""

from __future__ import annotations

import errno
import fcntl
import os
import uuid
from pathlib import Path

from allotment_spawner.disk.base import ToolFailed
from allotment_spawner.disk.mounts import Mount
from allotment_spawner.disk.tools import Run, run_tool

__all__ = ["BtrfsQuota"]

_FS_INFO = 0x8400941F
_FS_INFO_BYTES = 1024
_SYS = Path("/sys/fs/btrfs")
_SUBVOLUME_INODE = 256
"""Every subvolume's own folder has this inode number, and no other folder has."""


class BtrfsQuota:
    """Limits on a file system whose quotas an operator has switched on.

    Anybody may make subvolumes inside a folder of theirs. Simple quotas count these into the group above
    (1/ID here); classic ones do not, so usage is watched there.
    """

    name = "btrfs"

    def __init__(self, *, mount: Mount, simple: bool, run: Run = run_tool) -> None:
        self._mount = mount.point
        self._simple = simple
        self._run = run
        self.watch = not simple
        self.note = (
            None
            if simple
            else "Subvolumes that a session makes itself are not counted; "
            "`btrfs quota enable --simple` counts them."
        )

    @staticmethod
    def mode(root: Path) -> str | None:
        """ "squota", "qgroup", or None where quotas are off."""
        buffer = bytearray(_FS_INFO_BYTES)
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.ioctl(descriptor, _FS_INFO, buffer)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        groups = _SYS / str(uuid.UUID(bytes=bytes(buffer[16:32]))) / "qgroups"
        try:
            if (groups / "enabled").read_text(encoding="ascii").strip() != "1":
                return None
            return (groups / "mode").read_text(encoding="ascii").strip()
        except OSError:
            # kernels before 6.7 have no file `mode`, and no folder where quotas are off
            return "qgroup" if groups.is_dir() else None

    def make(self, folder: Path) -> None:
        if folder.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))
        self._run(["btrfs", "subvolume", "create", str(folder)])
        folder.chmod(0o700)

    def limit(self, folder: Path, descriptor: int, limit_bytes: int | None) -> bool:
        if not _is_subvolume(descriptor):
            return False  # an ordinary folder that was there before: only subvolumes have limits
        size = "none" if limit_bytes is None else str(limit_bytes)
        if self._simple:
            group = self._upper_group(self._number(folder), folder)
            self._run(["btrfs", "qgroup", "limit", size, group, str(folder)])
        else:
            self._run(["btrfs", "qgroup", "limit", size, str(folder)])
        return limit_bytes is not None

    def usage(self, folder: Path, descriptor: int) -> tuple[int | None, int | None, int | None]:
        if not _is_subvolume(descriptor):
            return None, None, None
        group = f"{int(self._simple)}/{self._number(folder)}"
        said = self._run(["btrfs", "qgroup", "show", "--raw", "-r", "-F", str(folder)])
        for line in said.splitlines():
            words = line.split()
            if len(words) >= 4 and words[0] == group:
                limit = int(words[3]) if words[3].isdigit() else None
                return int(words[1]), None, limit
        return None, None, None

    def remove(self, folder: Path) -> bool:
        """The limit first: at its limit a subvolume refuses even to delete."""
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            if not _is_subvolume(descriptor):
                return False
        finally:
            os.close(descriptor)
        number = self._number(folder)
        group = f"{int(self._simple)}/{number}"
        try:
            self._run(["btrfs", "qgroup", "limit", "none", group, str(folder)])
        except ToolFailed:
            if not self._simple:
                raise
            # killed between subvolume and group: there is none to lift
        try:
            self._run(["btrfs", "subvolume", "delete", str(folder)])
        except ToolFailed:
            return False  # other subvolumes inside: wiped one by one
        return True

    def tidy(self) -> None:
        """Groups of subvolumes that are gone; the kernel lets go of them some time after."""
        if not self._simple:
            return  # the kernel removes the groups of level 0 itself, or keeps them without harm
        said = self._run(["btrfs", "qgroup", "show", "--raw", self._mount])
        alive = {line.split()[0] for line in said.splitlines() if line.startswith("0/")}
        for line in said.splitlines():
            words = line.split()
            if words and words[0].startswith("1/") and f"0/{words[0][2:]}" not in alive and words[1] == "0":
                self._run(["btrfs", "qgroup", "destroy", words[0], self._mount])

    def _number(self, folder: Path) -> str:
        return self._run(["btrfs", "inspect-internal", "rootid", str(folder)]).strip()

    def _upper_group(self, number: str, folder: Path) -> str:
        """The group 1/ID above the subvolume; made once."""
        group, own = f"1/{number}", f"0/{number}"
        said = self._run(["btrfs", "qgroup", "show", "--raw", "-p", str(folder)])
        rows = [line.split() for line in said.splitlines() if line.startswith(("0/", "1/"))]
        if not any(row[0] == group for row in rows):
            self._run(["btrfs", "qgroup", "create", group, str(folder)])
        if not any(row[0] == own and group in row[3].split(",") for row in rows if len(row) > 3):
            self._run(["btrfs", "qgroup", "assign", own, group, str(folder)])
        return group


def _is_subvolume(descriptor: int) -> bool:
    return os.fstat(descriptor).st_ino == _SUBVOLUME_INODE
