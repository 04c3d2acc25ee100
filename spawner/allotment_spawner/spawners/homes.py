"""Before a session starts: whose files its home holds, and that the home is there."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from docker.errors import NotFound

from allotment_spawner.core.errors import HomeUnavailable, StartFailed
from allotment_spawner.daemon_threads import DaemonThreads
from allotment_spawner.engines.home_folders import ensure_home_folder
from allotment_spawner.engines.owners import Account, OwnerRule
from allotment_spawner.launch.account import AccountFiles, with_account
from allotment_spawner.launch.container import HomeMount, Owner, home_mount
from allotment_spawner.spawners.docker_workload import DockerCall, docker_answers

__all__ = ["Home", "Homes", "settle_home"]

T = TypeVar("T")
_ARCHIVE_LIMIT: Final = 1 << 20
_UMASK_OF_MANY: Final = "0002"
"""People with numbers of their own share folders by group; their homes are closed to all others."""
IMAGE_OWNER: Final = Owner()
"""The images' own account has its lines in them already, and owns the home they bring."""


@dataclass(frozen=True, slots=True)
class Home:
    """What a container gets: the mount, the account, and variables."""

    mount: HomeMount
    account: Account
    env: dict[str, str]


class Homes:
    """Asks the name service and the file system in threads of its own: one that hangs (a directory or
    file server that is down) delays starts only, never Docker calls, and is given up after `limit_s`.
    """

    def __init__(self, *, template: str, rule: OwnerRule, threads: DaemonThreads, limit_s: float) -> None:
        self._template = template
        self._rule = rule
        self._threads = threads
        self._limit_s = limit_s

    async def of(self, user: str, installation: str) -> Home:
        """The home of this person, there and theirs. Raises `HomeUnavailable`."""
        account = await self._in_time(lambda: self._rule.account_of(user), "This system's accounts do")
        mount = home_mount(self._template, installation=installation, user=user)
        if mount.kind == "bind":
            folder = Path(mount.source)
            await self._in_time(
                lambda: ensure_home_folder(folder, account.owner), "The disk with your home does"
            )
        umask = {"ALLOTMENT_UMASK": _UMASK_OF_MANY} if self._rule.kind == "nss" else {}
        return Home(mount=mount, account=account, env=umask)

    async def _in_time(self, work: Callable[[], T], what: str) -> T:
        try:
            return await asyncio.wait_for(self._threads.run(work), self._limit_s)
        except TimeoutError as error:
            raise HomeUnavailable(
                f"{what} not answer within {self._limit_s:.0f} seconds.",
                "Try again in a few minutes; tell an operator if it stays.",
            ) from error


async def settle_home(docker: DockerCall, container: str, home: Home) -> None:
    """Before the start, in a container that was just made: the account's name, and the home's owner.

    Nothing to do for the images' own account. Of a volume only its top folder is given to the owner:
    files of an earlier owner are not walked through.
    """
    if home.account.owner == IMAGE_OWNER:
        return
    try:
        async with docker_answers():
            await _settle(docker, container, home)
    except NotFound as error:
        raise StartFailed("The container went away while it was made.", "Start again.") from error


async def _settle(docker: DockerCall, container: str, home: Home) -> None:
    owner = home.account.owner
    before = AccountFiles(
        passwd=await _read(docker, container, "/etc/passwd"),
        group=await _read(docker, container, "/etc/group"),
    )
    after = with_account(before, owner=owner, name=home.account.name, group_names=home.account.group_names)
    if after != before:
        files = {"passwd": after.passwd, "group": after.group}
        await docker("put_archive", container, "/etc", _archive(files))
    if home.mount.kind == "volume" and (owner.uid, owner.gid) != (IMAGE_OWNER.uid, IMAGE_OWNER.gid):
        folder = Path(home.mount.target)
        await docker("put_archive", container, str(folder.parent), _folder(folder.name, owner))


async def _read(docker: DockerCall, container: str, path: str) -> str:
    """A file of the image; empty where it has none."""
    try:
        chunks, _ = await docker("get_archive", container, path)
    except NotFound:
        return ""
    data = await asyncio.to_thread(b"".join, chunks)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        member = archive.next()
        found = archive.extractfile(member) if member is not None and member.isreg() else None
        return "" if found is None else found.read(_ARCHIVE_LIMIT).decode(errors="surrogateescape")


def _archive(files: dict[str, str]) -> bytes:
    """Regular files of root, readable by all."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, text in files.items():
            data = text.encode(errors="surrogateescape")
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o644
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def _folder(name: str, owner: Owner) -> bytes:
    """One folder and nothing in it: unpacking it over one that exists only sets owner and mode."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.type, info.mode, info.uid, info.gid = tarfile.DIRTYPE, 0o700, owner.uid, owner.gid
        archive.addfile(info)
    return out.getvalue()
