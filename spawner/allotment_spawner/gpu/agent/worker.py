"""The worker: the only process that loads NVML; it does one verb after the other until its front goes."""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

import pynvml

from allotment_spawner.core.errors import AgentUnavailable, Refusal
from allotment_spawner.gpu.agent.hardware import HardwareMissing, Hooks, open_hardware
from allotment_spawner.gpu.agent.link import FromWorker, Ready, Task, Touching
from allotment_spawner.gpu.agent.setup import Setup
from allotment_spawner.gpu.agent.verbs import Verbs
from allotment_spawner.gpu.messages import Problem
from allotment_spawner.gpu.nvml.calls import error_word

__all__ = ["arguments", "main", "serve"]

_PR_SET_PDEATHSIG = 1


def serve(
    setup: Setup, tasks: IO[bytes], answers: IO[bytes], on_step: Callable[[str], None] = lambda _step: None
) -> None:
    """Answer `tasks`, one a line, until they end. `on_step` is for crash tests."""

    def say(message: FromWorker) -> None:
        answers.write(message.model_dump_json(exclude_defaults=True).encode() + b"\n")
        answers.flush()

    def touching(index: int, uuid: str | None) -> None:
        say(FromWorker(touching=Touching(index=index, uuid=uuid)))

    try:
        verbs = open_hardware(setup, replace(Hooks(), on_step=on_step, on_gpu=touching))
    except HardwareMissing as error:
        say(FromWorker(fatal=str(error)))
        return
    say(FromWorker(ready=Ready(boot_id=verbs.boot_id(), unsettled=verbs.unsettled())))
    while line := tasks.readline():
        say(_answer(verbs, Task.model_validate_json(line)))


def _answer(verbs: Verbs, task: Task) -> FromWorker:
    try:
        return _do(verbs, task)
    except Refusal as refusal:
        return FromWorker(problem=Problem.of(refusal), done=True)
    except pynvml.NVMLError as error:
        unknown = AgentUnavailable(
            f"The NVIDIA driver answered {error_word(error, pynvml)}.",
            "Try again in a minute; if it goes on, tell your operator.",
        )
        return FromWorker(problem=Problem.of(unknown), done=True)
    except OSError as error:
        unknown = AgentUnavailable(
            f"The agent cannot keep its records: {error}.", "Ask your operator to look at the disk."
        )
        return FromWorker(problem=Problem.of(unknown), done=True)


def _do(verbs: Verbs, task: Task) -> FromWorker:
    match task.verb:
        case "observe":
            seen = verbs.observe(task.skip)
            verbs.tidy(seen.inventory, complete=not task.skip)
            return FromWorker(done=True, inventory=seen.inventory, faults=seen.faults)
        case "ensure":
            made = verbs.ensure(task.gpu_uuid, task.profile, task.start, task.skip)
            return FromWorker(done=True, slice=made)
        case "destroy":
            verbs.destroy(task.gpu_uuid, task.profile, task.start, task.skip)
        case "settle":
            verbs.settle(task.gpu_uuid, task.skip)
        case "count":
            return FromWorker(done=True, count=verbs.count())
        case "sample":
            sampled = verbs.sample(task.index)
            return FromWorker(
                done=True, devices=sampled.devices, unread=sampled.unread, faults=sampled.faults
            )
    return FromWorker(done=True)


def arguments(argv: Sequence[str]) -> tuple[Setup, int, int]:
    """(setup, descriptor of the socket to the front, the front's pid) from the command line."""
    parser = argparse.ArgumentParser(prog="allotment-agent worker")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--front", type=int, required=True)
    parser.add_argument("--gpus", required=True)
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--node", required=True)
    parser.add_argument("--cdi-dir", type=Path)
    given = parser.parse_args(argv)
    setup = Setup(gpus=given.gpus, state_dir=given.state_dir, node=given.node, cdi_dir=given.cdi_dir)
    return setup, given.fd, given.front


def die_with(front: int) -> None:
    """A front that was killed takes the worker along, so that never two workers cut at once."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != front:
        # It died before the call above.
        raise SystemExit(1)


def main(argv: Sequence[str] | None = None, on_step: Callable[[str], None] = lambda _step: None) -> None:
    """Entry point of the child process."""
    setup, descriptor, front = arguments(sys.argv[1:] if argv is None else argv)
    die_with(front)
    # Ctrl-C in a terminal goes to the whole group; the front decides when the worker stops.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=descriptor) as connection:
        serve(setup, connection.makefile("rb"), connection.makefile("wb"), on_step)


if __name__ == "__main__":
    main()
