"""Disks whose room a test decides, and the agent's real folder verbs without a socket."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

from allotment_hub.broker.disk_parts import Room
from allotment_spawner.core.errors import AgentUnavailable
from allotment_spawner.disk.base import Folder, RootName, RootState, Usage
from allotment_spawner.disk.keeper import FolderKeeper
from allotment_spawner.disk.space import Space
from allotment_spawner.gpu.agent.folders import Folders

__all__ = ["AgentFolders", "SettableSpace", "room_of"]


@dataclass
class SettableSpace:
    """Every disk has this much room; None is a disk that cannot be read."""

    free_bytes: int | None = 2**40
    asked: list[Path] = field(default_factory=list)

    def __call__(self, path: Path) -> Space | None:
        self.asked.append(path)
        return None if self.free_bytes is None else Space(self.free_bytes, 2**41)


class AgentFolders:
    """`FolderVerbs` by the real keeper, silent when told so."""

    def __init__(self, scratch: Path, state_dir: Path) -> None:
        state_dir.mkdir(parents=True, exist_ok=True)
        keeper = FolderKeeper(roots={"scratch": scratch}, state_dir=state_dir)
        self._verbs = Folders(keeper=keeper)
        self.silent = False
        self.removed: list[str] = []
        self.slow: dict[str, asyncio.Event] = {}
        """Folder -> what its making waits for."""
        self.next_is_slow: asyncio.Event | None = None

    async def make_folder(
        self, root: RootName, name: str, *, uid: int, gid: int, mode: int, limit_bytes: int | None
    ) -> Folder:
        self._check()
        if self.next_is_slow is not None:
            self.slow[name], self.next_is_slow = self.next_is_slow, None
        if name in self.slow:
            await self.slow[name].wait()
        return await self._verbs.make_folder(root, name, uid=uid, gid=gid, mode=mode, limit_bytes=limit_bytes)

    async def remove_folder(self, root: RootName, name: str) -> None:
        self._check()
        self.removed.append(name)
        await self._verbs.remove_folder(root, name)

    async def folder_usage(self, root: RootName, name: str) -> Usage | None:
        self._check()
        return await self._verbs.folder_usage(root, name)

    async def list_folders(self, root: RootName) -> list[str]:
        self._check()
        return await self._verbs.list_folders(root)

    async def folder_root(self, root: RootName) -> RootState:
        self._check()
        return await self._verbs.folder_root(root)

    def close(self) -> None:
        self._verbs.close()

    def _check(self) -> None:
        if self.silent:
            raise AgentUnavailable("The agent does not answer.", "Try again in a minute.", verb="test")


def room_of(folders: AgentFolders, space: SettableSpace) -> Room:
    return Room(folders=folders, space=space)
