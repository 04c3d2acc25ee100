"""Removes the scratch folders that ended sessions left, whoever wrote into them and whatever their limits."""

from __future__ import annotations

import os
from pathlib import Path

from allotment_spawner.core.errors import Refusal
from allotment_spawner.disk.keeper import FolderKeeper
from allotment_spawner.engines.docker_scratch import DockerEmptier
from allotment_spawner.launch.container import Owner

from allotment_hub.host.errors import HostError
from allotment_hub.paths import Paths
from allotment_hub.runtime import Runtime
from allotment_hub.site import Site

__all__ = ["purge_scratch"]


def purge_scratch(site: Site, runtime: Runtime, paths: Paths) -> None:
    """After the last container is gone. `HostError` when something stays."""
    root = paths.scratch(site.scratch.path, runtime.installation)
    if not root.is_dir() or root.is_symlink():
        return
    try:
        if os.geteuid() != 0:
            _empty(site, runtime, root)
        # not a plain removal: a subvolume at its limit refuses even to delete
        keeper = FolderKeeper(roots={"scratch": root}, state_dir=paths.agent_state)
        for name in keeper.names("scratch"):
            keeper.remove("scratch", name)
        left = keeper.sweep()
    except Refusal as refusal:
        raise HostError(f"The scratch folders were not all removed: {refusal.sentence}") from None
    if left:
        raise HostError(f"{left} scratch folders in {root} could not be removed; remove them by hand.")


def _empty(site: Site, runtime: Runtime, root: Path) -> None:
    """What sessions wrote is their user's: a container as that user removes it."""
    owner = Owner(uid=site.homes.uid, gid=site.homes.gid)
    emptier = DockerEmptier(installation=runtime.installation, base_url=site.docker.socket)
    for folder in (*root.glob("[!.]*"), *root.glob(".trash/*")):
        if folder.is_dir() and not folder.is_symlink():
            emptier.empty_now(str(folder), folder.name, owner)
