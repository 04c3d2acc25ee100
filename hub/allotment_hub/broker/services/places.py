"""Which folders of this installation fill up, by their use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from allotment_spawner.core.errors import EngineUnavailable
from allotment_spawner.disk.roots import split_template

from allotment_hub.broker.services.disk import Place, Places
from allotment_hub.paths import Paths
from allotment_hub.runtime import Runtime
from allotment_hub.site import Site

__all__ = ["Storage", "places_of"]

Storage = Callable[[], Awaitable[Path | None]]
"""Where the engine keeps images and volumes; None where that is not on this machine."""


def places_of(*, site: Site, runtime: Runtime, paths: Paths, storage: Storage | None) -> Places:
    """Homes are shown, not guarded: who cannot start cannot clean up. The fetcher minds the datasets."""
    known = [Place("data", "Allotment's own data", paths.data)]
    if runtime.engine == "docker":
        scratch = paths.scratch(site.scratch.path, runtime.installation)
        known.append(Place("scratch", "the scratch space of sessions", scratch))
        cache = paths.cache(site.datasets.cache, runtime.installation)
        known.append(Place("datasets", "datasets", cache, guarded=False))
        if site.docker.home != "volume":
            root, _ = split_template(site.docker.home, site.docker.home)
            known.append(Place("homes", "homes", root, guarded=False))
    found: list[Path] = []

    async def places() -> list[Place]:
        if storage is not None and not found:
            try:
                root = await storage()
            except EngineUnavailable:
                root = None  # asked again at the next look
            if root is not None:
                found.append(root)
        return [*known, *(Place("engine", "images and sessions", root) for root in found)]

    return places
