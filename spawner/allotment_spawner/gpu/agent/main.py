"""allotment-agent: serves one node's GPUs on a unix socket."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from allotment_spawner.disk.base import RootName
from allotment_spawner.disk.keeper import FolderKeeper
from allotment_spawner.gpu.agent.child import CannotOpen, Hung, Stopped
from allotment_spawner.gpu.agent.folders import Folders
from allotment_spawner.gpu.agent.front import Deadlines, Front
from allotment_spawner.gpu.agent.health import Health
from allotment_spawner.gpu.agent.server import AgentServer, bind_socket
from allotment_spawner.gpu.agent.setup import Setup

__all__ = ["AgentOptions", "main", "run", "worker_command"]

_log = logging.getLogger("allotment.agent")
_PATIENCE_S = 3.0
_MAX_SOCKET_PATH = 100
_MAX_DEADLINE_S = 3600.0
_ROOTS: Mapping[str, RootName] = {"scratch": "scratch", "homes": "homes"}


class CannotStart(Exception):
    """One sentence for the operator; exit 2."""


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """What `allotment-agent` was told. `group` may use the socket beside its owner."""

    socket: Path
    setup: Setup
    group: str | None = None
    deadlines: Deadlines = field(default_factory=Deadlines)
    folders: Mapping[RootName, Path] = field(default_factory=dict)
    """Where folders of sessions and people may be made."""


def worker_command(setup: Setup, program: Sequence[str] = ()) -> list[str]:
    """The argument list that starts a worker (without the descriptor, which its front adds)."""
    command = [*(program or (sys.executable, "-m", "allotment_spawner.gpu.agent.worker"))]
    command += ["--gpus", setup.gpus, "--state-dir", str(setup.state_dir), "--node", setup.node]
    return command + (["--cdi-dir", str(setup.cdi_dir)] if setup.cdi_dir is not None else [])


async def run(options: AgentOptions, worker_program: Sequence[str] = ()) -> None:
    """Serve until SIGTERM or SIGINT. CannotStart when there is nothing to serve."""
    setup = options.setup
    lock = _lock(setup.state_dir)
    front = Front(
        setup=setup,
        health=Health(path=setup.state_dir / "health.json"),
        worker_command=worker_command(setup, worker_program),
        deadlines=options.deadlines,
    )
    try:
        await _open(front)
        await _serve(front, options)
    finally:
        await front.close()
        os.close(lock)


async def _open(front: Front) -> None:
    try:
        await front.open()
    except CannotOpen as error:
        raise CannotStart(str(error)) from error
    except (Hung, Stopped) as error:
        # The driver hangs or its library crashes: serve all the same, so that `health` says so and
        # every verb answers "unknown" until it works again.
        _log.error("the first worker did not get ready (%r); trying again at the next request", error)


async def _serve(front: Front, options: AgentOptions) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    keeper = FolderKeeper(roots=options.folders, state_dir=options.setup.state_dir)
    folders = Folders(keeper=keeper)
    server = AgentServer(front=front, folders=folders)
    await server.start(_listen(options))
    folders.sweep()
    _log.info("serving %s on %s", options.setup.gpus, options.socket)
    await stop.wait()
    await server.stop(_PATIENCE_S)
    folders.close()
    options.socket.unlink(missing_ok=True)
    _log.info("stopped")


def _listen(options: AgentOptions) -> socket.socket:
    if len(os.fsencode(options.socket)) > _MAX_SOCKET_PATH:
        raise CannotStart(
            f"The path {options.socket} is too long for a unix socket; use a shorter directory."
        )
    try:
        return bind_socket(options.socket, group=options.group)
    except KeyError as error:
        raise CannotStart(f"There is no group {options.group!r} on this machine.") from error
    except OSError as error:
        raise CannotStart(f"The socket {options.socket} cannot be made: {error.strerror}.") from error


def _lock(state_dir: Path) -> int:
    """Held as long as the agent lives: never two agents with one state directory."""
    try:
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(state_dir / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CannotStart(f"The directory {state_dir} cannot be used: {error.strerror}.") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.read(lock, 32).decode("ascii", "replace").strip()
        os.close(lock)
        raise CannotStart(f"An agent already runs with {state_dir} (process {holder}).") from error
    os.ftruncate(lock, 0)
    os.write(lock, f"{os.getpid()}\n".encode())
    return lock


def parse(argv: Sequence[str]) -> AgentOptions:
    """The options; argparse exits 2 with a usage line when they are wrong."""
    parser = argparse.ArgumentParser(prog="allotment-agent", description=__doc__)
    parser.add_argument("--socket", type=Path, required=True, help="unix socket to serve on (0600)")
    parser.add_argument("--state-dir", type=Path, required=True, help="journal, health, simulated machine")
    parser.add_argument("--gpus", default="nvml", help="nvml, none, or sim:2xA100-80GB:mig,...")
    parser.add_argument("--node", default=socket.gethostname(), help="this machine's name in the fleet")
    parser.add_argument("--cdi-dir", type=Path, help="write a CDI entry for each slice here")
    parser.add_argument("--group", help="group that may use the socket too (0660)")
    parser.add_argument(
        "--deadline",
        type=_deadline,
        action="append",
        default=[],
        metavar="VERB=SECONDS",
        help="the hardware's time: start (20), inventory (5), sample (5), ensure (30), destroy (30)",
    )
    parser.add_argument(
        "--folders",
        type=_folders,
        action="append",
        default=[],
        metavar="ROOT=PATH",
        help="where folders may be made: scratch=PATH (these are wiped, too), homes=PATH",
    )
    given = parser.parse_args(argv)
    setup = Setup(gpus=given.gpus, state_dir=given.state_dir, node=given.node, cdi_dir=given.cdi_dir)
    deadlines = replace(Deadlines(), **dict(given.deadline))
    return AgentOptions(
        socket=given.socket,
        setup=setup,
        group=given.group,
        deadlines=deadlines,
        folders=dict(given.folders),
    )


def _folders(text: str) -> tuple[RootName, Path]:
    name, _, path = text.partition("=")
    if name in _ROOTS and path.startswith("/"):
        return _ROOTS[name], Path(path)
    raise argparse.ArgumentTypeError(f"{text!r} is not scratch=/PATH or homes=/PATH")


def _deadline(text: str) -> tuple[str, float]:
    verb, _, seconds = text.partition("=")
    try:
        value = float(seconds)
    except ValueError:
        value = 0.0
    if verb not in {f.name for f in fields(Deadlines)} or not 0 < value <= _MAX_DEADLINE_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not VERB=SECONDS, for example inventory=10")
    return verb, value


def main(argv: Sequence[str] | None = None, worker_program: Sequence[str] = ()) -> None:
    """Console entry point."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s")
    options = parse(sys.argv[1:] if argv is None else argv)
    try:
        asyncio.run(run(options, worker_program))
    except CannotStart as error:
        sys.stderr.write(f"allotment-agent: {error}\n")
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
