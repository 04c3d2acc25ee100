"""Whether the folders of `mounts` are there, and really where site.yaml says."""

from __future__ import annotations

import asyncio
import posixpath
import stat
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from allotment_hub.paths import Paths
from allotment_hub.site import Mount, Site

__all__ = ["Found", "MountFolders", "look_at", "own_folders"]

_ANSWER_S = 5.0
_LINKS = 40
_SYSTEM = (
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib64",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
    "/var/run",
    "/var/lib/docker",
    "/var/lib/containerd",
)


@dataclass(frozen=True, slots=True)
class Found:
    """The real folder behind a mount's path, and what is wrong with it (None: nothing)."""

    real: str
    problem: str | None = None


def own_folders(site: Site, paths: Paths) -> tuple[str, ...]:
    """Allotment's own folders, which no session may see whole."""
    named = (site.datasets.cache, site.scratch.path, site.homes.archive)
    return (str(paths.data), *(path for path in named if path is not None))


def look_at(mount: Mount, site: Site, own: Sequence[str]) -> Found:
    """Resolve the operator's own links. Blocks as long as the file system does.

    The real folder must not be the system's or one of Allotment's `own`, and no step of the way may lie in
    a folder that sessions can write: there anybody could put a link to elsewhere in its place.
    """
    try:
        real, steps = _resolve(mount.path)
        if not stat.S_ISDIR(Path(real).stat().st_mode):
            return Found(mount.path, f"{mount.path} is no folder.")
    except OSError as error:
        why = f"{mount.path} cannot be opened ({error.strerror}). Make it, or mount what belongs there."
        return Found(mount.path, why)
    homes = _homes(site)
    if homes is not None and _within(posixpath.realpath(homes), real):
        return Found(
            real, f"{mount.path} holds everybody's homes ({homes}): one could open another's. Choose another."
        )
    for part in own:
        if _touches(real, part):
            return Found(
                real, f"{mount.path} holds Allotment's own data, or lies in it. Choose another folder."
            )
    for part in _SYSTEM:
        if _touches(real, part):
            return Found(
                real, f"{mount.path} is {real}, which is the system's ({part}). Choose another folder."
            )
    for writable in _writable(site, but=mount.name):
        if any(_within(step, writable) for step in steps):
            return Found(
                real,
                f"The way to {mount.path} leads through {writable}, which sessions can write: they could put "
                "a link in its place. Move one of them, or let that folder be read-only.",
            )
    return Found(real)


def _resolve(path: str) -> tuple[str, list[str]]:
    """The real path, and every folder in which one of its parts, or of a link's on the way, was looked up."""
    here, steps, links = "/", [], 0
    parts = deque(path.split("/"))
    while parts:
        part = parts.popleft()
        if part in ("", "."):
            continue
        if part == "..":
            here = posixpath.dirname(here)
            continue
        steps.append(here)
        there = posixpath.join(here, part)
        if not posixpath.islink(there):
            here = there
            continue
        links += 1
        if links > _LINKS:
            raise OSError(40, "Too many links", path)
        target = str(Path(there).readlink())
        here = "/" if target.startswith("/") else here
        parts.extendleft(reversed(target.split("/")))
    return here, steps


def _writable(site: Site, *, but: str) -> list[str]:
    """Real folders below which sessions write."""
    paths = [mount.path for mount in site.mounts if mount.write and mount.name != but]
    if (homes := _homes(site)) is not None:
        paths.append(homes)
    return [posixpath.realpath(path) for path in paths]


def _homes(site: Site) -> str | None:
    """The folder that homes lie in; None where they are volumes."""
    home = site.docker.home
    return None if home == "volume" else posixpath.dirname(home.partition("{username}")[0] + "x")


def _within(path: str, folder: str) -> bool:
    return PurePosixPath(path).is_relative_to(folder)


def _touches(path: str, part: str) -> bool:
    real = posixpath.realpath(part)
    return _within(path, real) or _within(real, path)


class MountFolders:
    """Asks off the event loop, one question for a folder at a time: a network file system that hangs takes
    one thread, not all. `own` are Allotment's folders, which no session may see."""

    def __init__(self, *, site: Site, own: Sequence[str], answer_s: float = _ANSWER_S) -> None:
        self._site = site
        self._own = tuple(own)
        self._answer_s = answer_s
        self._asked: dict[str, Future[Found]] = {}
        self._found: dict[str, Found] = {}

    async def problem(self, mount: Mount) -> str | None:
        """What is wrong with it; one that does not answer is told as such."""
        try:
            async with asyncio.timeout(self._answer_s):
                found = await asyncio.shield(asyncio.wrap_future(self.ask(mount)))
        except TimeoutError:
            return f"{mount.path} does not answer. If it is a network file system, look at its server."
        return found.problem

    def ask(self, mount: Mount) -> Future[Found]:
        """Look at it now, or go on with the look that is not over yet; does not wait."""
        asked = self._asked.get(mount.name)
        if asked is None or asked.done():
            asked = self._asked[mount.name] = Future()
            # a daemon: one that hangs for ever must not keep this process from ending
            threading.Thread(
                target=self._look, args=(mount, asked), name=f"mount-{mount.name}", daemon=True
            ).start()
        return asked

    def found(self, mount: Mount) -> Found | None:
        """As of the last look that was answered; None when there was none since the start."""
        return self._found.get(mount.name)

    def _look(self, mount: Mount, asked: Future[Found]) -> None:
        try:
            found = self._found[mount.name] = look_at(mount, self._site, self._own)
            asked.set_result(found)
        except BaseException as error:  # noqa: BLE001 - told where it is waited for
            asked.set_exception(error)
