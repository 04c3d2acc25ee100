"""The real allotment-agent as a process, for tests that kill, hang and restart it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType

from allotment_spawner.core.errors import AgentUnavailable
from allotment_spawner.gpu.agent_client import UnixAgent
from allotment_spawner.gpu.simulator.control import SimControl

from allotment_testing import dying_agent

__all__ = ["AgentProcess", "eventually"]

_SPEC = "sim:2xA100-80GB:mig,1xA100-80GB:whole"


async def eventually(condition: Callable[[], Awaitable[bool]], within_s: float = 15.0) -> None:
    """Wait until the condition holds; AssertionError when it does not in time."""
    async with asyncio.timeout(within_s):
        while not await condition():  # noqa: ASYNC110  what another process does sets no event here
            await asyncio.sleep(0.02)


class AgentProcess:
    """`async with AgentProcess(folder)`: running; `restart()` starts it again in the same folder.

    `dies_at` = (step, "worker" or "agent") kills that one once, at that step of a change.
    """

    def __init__(
        self,
        folder: Path,
        *,
        spec: str = _SPEC,
        dies_at: tuple[str, str] | None = None,
        deadlines: dict[str, float] | None = None,
        folders: dict[str, Path] | None = None,
    ) -> None:
        self.folder = folder
        self.socket = folder / "agent.sock"
        self.state_dir = folder / "state"
        self.client = UnixAgent(socket_path=self.socket, deadline_s=30)
        self._spec = spec
        self._dies_at = dies_at
        self._deadlines = deadlines or {}
        self._folders = folders or {}
        self.process: asyncio.subprocess.Process | None = None

    @property
    def control(self) -> SimControl:
        return SimControl(self.state_dir / "sim.json")

    @property
    def died(self) -> bool:
        """Whether the death that was asked for came."""
        return (self.folder / "died").exists()

    def command(self) -> list[str]:
        options = ["--socket", str(self.socket), "--state-dir", str(self.state_dir), "--gpus", self._spec]
        options += [f"--deadline={verb}={seconds}" for verb, seconds in self._deadlines.items()]
        for name, path in self._folders.items():
            options += ["--folders", f"{name}={path}"]
        if self._dies_at is None:
            return [sys.executable, "-m", "allotment_spawner.gpu.agent.main", *options]
        marker = str(self.folder / "died")
        return [sys.executable, dying_agent.__file__, *self._dies_at, marker, "--", *options]

    async def start(self) -> None:
        """Start and wait until it answers."""
        with (self.folder / "agent.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(*self.command(), stderr=log)
        await eventually(self.answers)

    async def answers(self) -> bool:
        assert self.process is not None
        assert self.process.returncode is None, (self.folder / "agent.log").read_text()
        try:
            return (await self.client.health()).ok
        except AgentUnavailable:
            return False

    async def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def restart(self) -> None:
        await self.kill()
        await self.start()

    async def __aenter__(self) -> AgentProcess:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()
