"""The front's hold on its worker process: start, one task at a time with a deadline, kill."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

from allotment_spawner.gpu.agent.link import FromWorker, Ready, Task, Touching
from allotment_spawner.gpu.messages import MAX_REPLY_BYTES

__all__ = ["Child", "CannotOpen", "Hung", "Stopped"]

_log = logging.getLogger("allotment.agent")
_BURIAL_S = 2.0


class CannotOpen(Exception):
    """The worker's sentence: the hardware cannot be opened."""


class Stopped(Exception):
    """The worker died, or spoke nonsense, before it answered."""


@dataclass
class Hung(Exception):
    """The deadline passed; `touching` is the GPU it was at, None when it was at no GPU's call."""

    touching: Touching | None


class Child:
    """One worker process. After Hung or Stopped it is of no more use: `kill` and start another."""

    def __init__(
        self,
        *,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._touching: Touching | None = None

    @classmethod
    async def start(cls, command: Sequence[str], *, deadline_s: float) -> tuple[Child, Ready]:
        """Start and wait until it is ready. CannotOpen, Hung or Stopped otherwise (nothing is left)."""
        ours, theirs = socket.socketpair()
        try:
            os.set_inheritable(theirs.fileno(), True)
            process = await asyncio.create_subprocess_exec(
                *command,
                "--fd",
                str(theirs.fileno()),
                "--front",
                str(os.getpid()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours, limit=MAX_REPLY_BYTES)
        child = cls(process=process, reader=reader, writer=writer)
        try:
            message = await child._next(deadline_s)
            if message.fatal is not None:
                raise CannotOpen(message.fatal)
            if message.ready is None:
                raise Stopped
        except BaseException:
            await child.kill()
            raise
        return child, message.ready

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    async def do(self, task: Task, *, deadline_s: float) -> FromWorker:
        """The worker's last line for this task. Hung or Stopped."""
        self._touching = None
        try:
            self._writer.write(task.model_dump_json().encode() + b"\n")
            await self._writer.drain()
        except OSError as error:
            raise Stopped from error
        return await self._next(deadline_s)

    async def _next(self, deadline_s: float) -> FromWorker:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(deadline_s) as timer:
                while True:
                    line = await self._reader.readline()
                    message = FromWorker.model_validate_json(line)
                    if message.touching is None:
                        return message
                    if self._touching is None or message.touching.index != self._touching.index:
                        # Every GPU has the deadline for itself, so that on a large node the last
                        # one is not blamed for the time that the others took.
                        timer.reschedule(loop.time() + deadline_s)
                    self._touching = message.touching
        except TimeoutError:
            raise Hung(self._touching) from None
        except (OSError, ValueError) as error:
            # ValidationError is a ValueError: an empty or torn line, so the process is gone.
            raise Stopped from error

    async def kill(self) -> None:
        """End it for good. One that hangs inside the driver is abandoned: it dies when the call returns."""
        self._writer.close()
        if self._process.returncode is None:
            try:
                self._process.kill()
            except ProcessLookupError:
                return
        try:
            async with asyncio.timeout(_BURIAL_S):
                await self._process.wait()
        except TimeoutError:
            _log.warning("worker %s hangs inside the driver and cannot be ended; left behind", self.pid)
