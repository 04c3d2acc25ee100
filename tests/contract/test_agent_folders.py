"""The folder verbs over the agent's socket: beside a GPU that hangs, after kill -9, and nothing outside."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from allotment_spawner.core.errors import AgentUnavailable, BadOptions
from allotment_spawner.disk.base import Folder, RootName
from allotment_spawner.disk.keeper import FolderKeeper
from allotment_spawner.gpu.agent.folders import Folders
from allotment_spawner.gpu.agent_client import UnixAgent
from allotment_testing.agent_process import AgentProcess, eventually

GIB = 2**30


def process(folder: Path) -> AgentProcess:
    return AgentProcess(
        folder, folders={"scratch": folder / "scratch"}, deadlines={"inventory": 20, "ensure": 20}
    )


async def make(agent: UnixAgent, name: str = "abc") -> Folder:
    return await agent.make_folder("scratch", name, uid=1234, gid=2345, mode=0o700, limit_bytes=GIB)


async def test_a_gpu_that_hangs_keeps_nobody_from_a_folder(tmp_path: Path) -> None:
    async with process(tmp_path) as agent:
        bad = (await agent.client.inventory()).gpus[0].uuid
        agent.control.hang(bad, "*")
        stuck = asyncio.ensure_future(agent.client.inventory())
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            made = await make(agent.client)
            assert made.created
            usage = await agent.client.folder_usage("scratch", "abc")
            assert usage is not None
            assert usage.watch
            assert await agent.client.list_folders("scratch") == ["abc"]
            await agent.client.remove_folder("scratch", "abc")
            assert await agent.client.folder_usage("scratch", "abc") is None
        assert not stuck.done(), "the inventory was not waiting, so nothing was shown"
        stuck.cancel()
        await asyncio.gather(stuck, return_exceptions=True)


class HomesThatHang(FolderKeeper):
    """As on a file server that is away, until `is_back`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(roots={"scratch": folder / "scratch", "homes": folder / "homes"}, state_dir=folder)
        self.is_back = threading.Event()

    def make(
        self, root: RootName, name: str, *, uid: int, gid: int, mode: int, limit_bytes: int | None
    ) -> Folder:
        if root == "homes":
            self.is_back.wait(30)
        return super().make(root, name, uid=uid, gid=gid, mode=mode, limit_bytes=limit_bytes)


async def test_homes_that_hang_keep_nobody_from_scratch(tmp_path: Path) -> None:
    keeper = HomesThatHang(tmp_path)
    folders = Folders(keeper=keeper, deadline_s=0.2)

    async def made(root: RootName, name: str) -> Folder:
        return await folders.make_folder(root, name, uid=1234, gid=2345, mode=0o700, limit_bytes=None)

    answers = await asyncio.gather(
        *(made("homes", f"p{number}") for number in range(9)), return_exceptions=True
    )
    assert {type(answer) for answer in answers} == {AgentUnavailable}
    assert (await made("scratch", "abc")).created
    hanging = [thread for thread in threading.enumerate() if thread.name == "folders-homes"]
    assert hanging
    assert all(thread.daemon for thread in hanging), "an agent that stops would wait for them"
    keeper.is_back.set()
    folders.close()


async def test_what_a_killed_agent_had_removed_is_wiped_at_its_next_start(tmp_path: Path) -> None:
    async with process(tmp_path) as agent:
        await make(agent.client)
        trash = tmp_path / "scratch" / ".trash"
        await agent.kill()
        (tmp_path / "scratch" / "abc" / "file").write_text("x")
        (tmp_path / "scratch" / "abc").rename(trash / "abc.1")
        await agent.start()

        async def empty() -> bool:
            return (await agent.client.folder_root("scratch")).leftovers == 0

        await eventually(empty)
        assert list(trash.iterdir()) == []
        assert await agent.client.list_folders("scratch") == []


async def test_two_at_once_make_one_folder(tmp_path: Path) -> None:
    async with process(tmp_path) as agent:
        made = await asyncio.gather(*(make(agent.client) for _ in range(8)))
        assert [folder.created for folder in made].count(True) == 1
        assert len({folder.path for folder in made}) == 1


async def test_nothing_outside_its_roots(tmp_path: Path) -> None:
    """The agent is root and its caller is not, so the caller's word for a path is worth nothing."""
    victim = tmp_path / "victim"
    victim.mkdir()
    async with process(tmp_path) as agent:
        await make(agent.client)
        for name in ("../victim", "/etc", "..", f"..{victim}", "a/../../victim", ".trash", ".allotment"):
            with pytest.raises(BadOptions):
                await make(agent.client, name)
            with pytest.raises(BadOptions):
                await agent.client.remove_folder("scratch", name)
        with pytest.raises(BadOptions, match="without a folder for homes"):
            await agent.client.make_folder("homes", "ann", uid=1234, gid=100, mode=0o700, limit_bytes=None)
        for uid, gid in ((0, 100), (100, 100), (1000, 0)):
            with pytest.raises(BadOptions):
                await agent.client.make_folder(
                    "scratch", "system", uid=uid, gid=gid, mode=0o700, limit_bytes=None
                )
    assert victim.stat().st_uid == os.geteuid()


async def test_a_root_swapped_for_a_link_is_refused(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    async with process(tmp_path) as agent:
        await make(agent.client)
        (tmp_path / "scratch").rename(tmp_path / "moved")
        (tmp_path / "scratch").symlink_to(elsewhere)
        with pytest.raises(AgentUnavailable):
            await make(agent.client, "new")
        assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("word", ["scratch=relative", "other=/x", "scratch", "=/x"])
def test_a_wrong_place_is_a_usage_line(tmp_path: Path, word: str) -> None:
    command = [sys.executable, "-m", "allotment_spawner.gpu.agent.main", "--socket", str(tmp_path / "s")]
    command += ["--state-dir", str(tmp_path), "--folders", word]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "scratch=/PATH" in done.stderr
