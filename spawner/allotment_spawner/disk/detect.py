"""Chooses what limits the folders of one root."""

from __future__ import annotations

import os
from pathlib import Path

from allotment_spawner.disk.base import Quota
from allotment_spawner.disk.btrfs import BtrfsQuota
from allotment_spawner.disk.mounts import mount_of
from allotment_spawner.disk.plain import NoQuota
from allotment_spawner.disk.projects import ProjectIds
from allotment_spawner.disk.tools import Run, run_tool
from allotment_spawner.disk.xfs import XfsQuota
from allotment_spawner.disk.zfs import ZfsQuota

__all__ = ["quota_for"]


def quota_for(root: Path, *, ids: ProjectIds, run: Run = run_tool) -> Quota:
    """By the file system below this existing folder. Only root can set limits."""
    if os.geteuid() != 0:
        return NoQuota(note="Allotment's agent does not run as root, so nothing here is limited.")
    mount = mount_of(root)
    if mount is None:
        return NoQuota(note=f"The file system of {root} cannot be told.")
    why: str | None
    if mount.kind == "xfs":
        why = XfsQuota.works_on(mount)
        return XfsQuota(mount=mount, ids=ids, run=run) if why is None else NoQuota(note=why)
    if mount.kind == "zfs":
        why = ZfsQuota.works_on(mount, run)
        return ZfsQuota(mount=mount, ids=ids, run=run) if why is None else NoQuota(note=why)
    if mount.kind == "btrfs":
        mode = BtrfsQuota.mode(root)
        if mode is not None:
            return BtrfsQuota(mount=mount, simple=mode == "squota", run=run)
        return NoQuota(note=f"{mount.point} is btrfs without quotas; btrfs quota enable switches them on.")
    return NoQuota(note=f"{mount.point} is {mount.kind}, which has no quotas that Allotment knows.")
