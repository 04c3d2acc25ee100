"""One gated process of one attempt: it exists before the broker is asked, and runs only after it agreed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from urllib.parse import urlsplit

from allotment_spawner.core.errors import StartFailed
from allotment_spawner.engines.local import LocalEngine
from allotment_spawner.engines.procfs import Process, read_process
from allotment_spawner.launch.process import GATE_OPEN

__all__ = ["ENV_ATTEMPT", "LocalWorkload"]

ENV_ATTEMPT = "ALLOTMENT_ATTEMPT"
_REAP_S = 2.0
_LOOKS = 50
_LOOK_AGAIN_S = 0.02


@dataclass
class LocalWorkload:
    """`engine_ref` is the lease. `spawn` makes the gated process (Popen with a pipe as stdin), None for
    one that was found running; that one is known by `pid` and by the lease in its environment."""

    engine_ref: str
    engine: LocalEngine
    uid: int
    spawn: Callable[[], Popen[bytes]] | None = None
    pid: int = 0
    proc: Path = Path("/proc")
    _process: Popen[bytes] | None = None
    _opened: bool = False

    async def make(self) -> None:
        if self.spawn is None:
            return
        # the leftover of an earlier attempt of this lease, which may not run any more
        await self.engine.stop(self.engine_ref, grace_s=0)
        self._process = self.spawn()
        self.pid = self._process.pid

    async def start(self) -> None:
        process = self._process
        if process is None or process.stdin is None:
            raise _stopped("it was never made")
        self._opened = True
        try:
            with process.stdin as gate:
                gate.write(GATE_OPEN)
                gate.flush()
        except OSError as error:
            raise _stopped("its gate was closed") from error

    async def devices(self) -> tuple[str, ...]:
        visible = (await self._look()).env.get("CUDA_VISIBLE_DEVICES", "")
        return tuple(part for part in visible.split(",") if part)

    async def url(self) -> str:
        """From the environment that the process was made with."""
        bound = urlsplit((await self._look()).env.get("JUPYTERHUB_SERVICE_URL", ""))
        host = bound.hostname or ""
        host = "127.0.0.1" if host in ("", "0.0.0.0", "::") else host  # noqa: S104
        return f"{bound.scheme or 'http'}://{f'[{host}]' if ':' in host else host}:{bound.port}{bound.path}"

    async def exited(self) -> int | str | None:
        if self._process is not None:
            code = self._process.poll()
            return None if code is None else f"exit code {code}"
        return None if self._read() is not None else 0

    async def last_words(self) -> str:
        """The log is a file that stays."""
        return ""

    async def remove(self, *, grace_s: float) -> None:
        """The gate alone can be killed; a started server is asked first, then all that bears its lease."""
        process = self._process
        if process is not None and not self._opened:
            process.kill()
        elif process is not None or self.spawn is None:
            await self.engine.stop(self.engine_ref, grace_s=grace_s)
        if process is not None:
            await asyncio.to_thread(_reap, process)

    async def _look(self) -> Process:
        """While the gate becomes the server (exec), the kernel shows an empty environment for a moment:
        our own child that still runs is looked at again before it is called gone."""
        for _ in range(_LOOKS):
            found = self._read()
            if found is not None:
                return found
            if self._process is None or self._process.poll() is not None:
                break
            await asyncio.sleep(_LOOK_AGAIN_S)
        raise _stopped("it is gone")

    def _read(self) -> Process | None:
        """The process while it is this lease's: a pid is given to others later."""
        found = read_process(self.proc, self.pid, uid=self.uid) if self.pid else None
        return found if found and found.env.get("ALLOTMENT_LEASE") == self.engine_ref else None


def _reap(process: Popen[bytes]) -> None:
    if process.stdin is not None and not process.stdin.closed:
        process.stdin.close()
    try:
        process.wait(_REAP_S)
    except TimeoutExpired:
        return


def _stopped(how: str) -> StartFailed:
    return StartFailed(
        f"The server stopped while it started: {how}.",
        "Start again; tell an operator if it stays. The server's log says more.",
    )
