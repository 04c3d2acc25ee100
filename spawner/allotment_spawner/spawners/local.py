"""GpuLocalSpawner: sessions as processes of the hub's own Unix user, for trying out."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen
from typing import Any

from jupyterhub.spawner import SimpleLocalProcessSpawner
from jupyterhub.utils import random_port
from traitlets import Unicode, default

from allotment_spawner.engines.base import Workload as Observed
from allotment_spawner.engines.local import LocalEngine
from allotment_spawner.engines.procfs import Process, read_process
from allotment_spawner.launch.names import safe_name
from allotment_spawner.launch.process import gate_argv, process_env
from allotment_spawner.spawners.local_workload import ENV_ATTEMPT, LocalWorkload
from allotment_spawner.spawners.mixin import GpuSpawnerMixin
from allotment_spawner.spawners.session import Session
from allotment_spawner.wire import Launch

__all__ = ["GpuLocalSpawner", "log_name"]

_PROC = Path("/proc")


class GpuLocalSpawner(GpuSpawnerMixin, SimpleLocalProcessSpawner):
    """Homes are folders below `homes_dir`; the server is the hub's own environment's. There is no wall
    between people: all of them are one Unix user."""

    homes_dir = Unicode("homes", config=True, help="Folder of one home for each person.")
    logs_dir = Unicode("logs", config=True, help="Folder of one log for each server, and the one before it.")

    @default("home_dir")
    def _default_home(self) -> str:
        return str(Path(self.homes_dir).resolve() / safe_name(self.user.name))

    @default("cmd")
    def _default_command(self) -> list[str]:
        """Of the hub's environment, whatever PATH says."""
        return [sys.executable, "-m", "jupyterhub.singleuser"]

    # -- GpuSpawnerMixin -------------------------------------------------------------------------

    async def build_workload(self, launch: Launch, session: Session) -> LocalWorkload:
        self.port = random_port()
        home = Path(self.home_dir)
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        env = process_env(
            launch,
            os.environ,
            user=session.user,
            server=session.server,
            extra_env={**self.get_env(), "PATH": _path(), ENV_ATTEMPT: session.attempt},
        )
        spawn = partial(self._spawn, gate_argv(self._command()), env=env, home=home)
        return LocalWorkload(
            engine_ref=launch.env["ALLOTMENT_LEASE"], engine=self._engine(), uid=os.getuid(), spawn=spawn
        )

    async def find_workload(self) -> Session | None:
        for seen in await self._engine().observe():
            if (seen.user, seen.server or "") == (self.user.name, self.name) and seen.state == "running":
                first = _first(seen)
                if first is not None and seen.lease is not None:
                    self.pid = first.pid
                    return Session(
                        user=self.user.name,
                        server=self.name,
                        attempt=first.env.get(ENV_ATTEMPT, ""),
                        lease=seen.lease,
                        devices=seen.devices,
                        workload=self._found(seen.lease, first.pid),
                    )
        return None

    def workload_of(self, state: Mapping[str, Any]) -> LocalWorkload:
        return self._found(state["allotment"]["engine_ref"], int(state.get("pid", 0)))

    # -- processes ---------------------------------------------------------------------------------

    def _engine(self) -> LocalEngine:
        return LocalEngine(installation=self.installation, proc=_PROC)

    def _found(self, lease: str, pid: int) -> LocalWorkload:
        return LocalWorkload(engine_ref=lease, engine=self._engine(), uid=os.getuid(), pid=pid)

    def _command(self) -> list[str]:
        command = [*self.cmd, *self.get_args()]
        if os.getuid() == 0:
            # a Jupyter server refuses to run as root unless told so
            command.append("--allow-root")
        if self.shell_cmd:
            return [*self.shell_cmd, shlex.join(command)]
        return command

    def _spawn(self, argv: list[str], *, env: Mapping[str, str], home: Path) -> Popen[bytes]:
        """The gate, in a session of its own: a signal to the hub does not reach it, and it ends on end of
        file if the hub dies first (no other child inherits the pipe)."""
        with self._log_file().open("wb") as log:
            options = {"cwd": home, **self.popen_kwargs}
            options |= {
                "env": dict(env),
                "stdin": PIPE,
                "stdout": log,
                "stderr": STDOUT,
                "start_new_session": True,
                "close_fds": True,
            }
            self.proc = Popen(argv, **options)
        self.pid = self.proc.pid
        return self.proc

    def _log_file(self) -> Path:
        """A new file that only this Unix user can read; the last session's is kept beside it."""
        folder = Path(self.logs_dir)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = folder / log_name(self.user.name, self.name)
        if log.exists():
            log.replace(log.with_name(f"{log.name}.1"))
        log.touch(mode=0o600)
        return log


def log_name(user: str, server: str) -> str:
    """One file for each server: a safe name holds no dot, so no person's name reads as another's server."""
    return safe_name(user) + (f".{safe_name(server)}" if server else "") + ".log"


def _first(seen: Observed) -> Process | None:
    """The oldest process that bears the lease itself: the server, whose kernels inherit its environment."""
    read = (read_process(_PROC, pid, uid=os.getuid()) for pid in seen.pids)
    bearers = [one for one in read if one is not None and one.env.get("ALLOTMENT_LEASE") == seen.lease]
    return min(bearers, key=lambda one: (one.started, one.pid), default=None)


def _path() -> str:
    """The hub's own programs first, so that `jupyter` and `allot` in a terminal are this installation's."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
