"""Whether shared folders and the cache of datasets can be used."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from allotment_hub.data.folders import MountFolders, own_folders
from allotment_hub.host.checks import Finding
from allotment_hub.paths import Paths
from allotment_hub.site import Site

__all__ = ["data_findings"]


def data_findings(site: Site, paths: Paths) -> list[Finding]:
    """One for each mount, and one for the cache where site.yaml names a folder for it."""
    folders = MountFolders(site=site, own=own_folders(site, paths))
    problems = asyncio.run(_problems(site, folders))
    found = [
        Finding(f"mount {mount.name}", "ok", f"{mount.path} is there")
        if problem is None
        else Finding(
            f"mount {mount.name}",
            "error",
            problem,
            f"Until then nobody who may see it can start; or remove {mount.name} from mounts in site.yaml.",
        )
        for mount, problem in zip(site.mounts, problems, strict=True)
    ]
    if site.datasets.cache is not None:
        found.append(_cache(Path(site.datasets.cache)))
    return found


async def _problems(site: Site, folders: MountFolders) -> list[str | None]:
    return list(await asyncio.gather(*(folders.problem(mount) for mount in site.mounts)))


def _cache(folder: Path) -> Finding:
    if not folder.is_dir():
        what, remedy = f"{folder} does not exist.", "Make it, owned by the account that runs the services."
        return Finding("datasets", "error", what, remedy)
    if not os.access(folder, os.W_OK | os.X_OK):
        what, remedy = f"{folder} cannot be written.", "Give it to the account that runs the services."
        return Finding("datasets", "error", what, remedy)
    return Finding("datasets", "ok", f"the cache is {folder}")
