"""What `allot doctor` says of disks: room above the floor, and what limits scratch folders and homes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from allotment_spawner.core.errors import Refusal
from allotment_spawner.disk.base import RootName, RootState
from allotment_spawner.disk.space import space_of
from allotment_spawner.gpu.agent_client import UnixAgent

from allotment_hub.host.checks import Finding
from allotment_hub.host.settings import HostSettings
from allotment_hub.paths import Paths
from allotment_hub.site import Site

__all__ = ["floor_findings", "quota_findings", "root_findings"]

_GIB = 1 << 30
_ASK_S = 5.0


def floor_findings(site: Site, paths: Paths, settings: HostSettings | None) -> list[Finding]:
    """One for each disk that is below the floor; one that all is well otherwise."""
    floor = int(site.disk.floor_gib * _GIB)
    places = {"Allotment's data": paths.data}
    if settings is not None and settings.scratch is not None:
        places["scratch space"] = Path(settings.scratch)
    found = []
    for what, path in places.items():
        space = space_of(path)
        if space is not None and space.free_bytes < floor:
            said = f"Nothing new is started: the disk for {what} has {space.free_bytes / _GIB:.1f} GiB left."
            remedy = (
                f"Make room at {path}, or lower disk.floor_gib in site.yaml ({site.disk.floor_gib:g} now)."
            )
            found.append(Finding("room", "error", said, remedy))
    if not found:
        found.append(Finding("room", "ok", f"more than {site.disk.floor_gib:g} GiB free where it is needed"))
    return found


def quota_findings(site: Site, paths: Paths, settings: HostSettings) -> list[Finding]:
    """As the agent answers; nothing while it does not, which is said elsewhere."""
    agent = UnixAgent(socket_path=paths.agent_socket, deadline_s=_ASK_S)
    found: list[Finding] = []
    roots: list[tuple[RootName, bool]] = [("scratch", settings.scratch is not None)]
    roots.append(("homes", settings.homes is not None and site.homes.quota_gib is not None))
    for root, used in roots:
        if used:
            found += root_findings(root, _ask(agent, root))
    return found


def root_findings(root: RootName, state: RootState | Refusal | None) -> list[Finding]:
    """Pure: from the agent's answer; None is no answer."""
    if state is None:
        return []
    if isinstance(state, Refusal):
        what = f"Sessions start without scratch space: {state.sentence}"
        if root == "homes":
            what = f"Homes are not limited: {state.sentence}"
        return [Finding(root, "error", what, state.next_step)]
    if state.quota == "none":
        what = f"What {root} may hold is measured, not limited: {state.note}"
        return [Finding(root, "warning", what, "People are told when they hold more than they may.")]
    if state.note is not None:
        return [Finding(root, "warning", f"{state.path} is limited by {state.quota}.", state.note)]
    return [Finding(root, "ok", f"{state.path} is limited by {state.quota}")]


def _ask(agent: UnixAgent, root: RootName) -> RootState | Refusal | None:
    try:
        return asyncio.run(agent.folder_root(root))
    except Refusal as refusal:
        return None if "verb" in refusal.details else refusal
