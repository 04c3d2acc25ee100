"""`allot sim`: drives the simulated GPUs of an installation on this machine."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from allotment.console import DataDir, fail, screen
from allotment.errors import AllotmentError, NotConfigured
from allotment.settings import default_data_dir
from allotment_spawner.core.errors import AgentUnavailable
from allotment_spawner.gpu.agent_client import UnixAgent
from allotment_spawner.gpu.simulator.control import SimControl
from allotment_spawner.gpu.simulator.state import SimGpu, SimProcess, SimWork
from rich.table import Table

from allotment_hub.paths import Paths

__all__ = ["app", "register"]

app = typer.Typer(
    name="sim",
    help="Drive the simulated GPUs of this installation: load, faults, errors, hangs, latency, reboot.\n\n"
    "GPUs are named by index (0) or UUID, slices by UUID; `allot sim show` lists them.",
    no_args_is_help=True,
)
Gpu = Annotated[str, typer.Argument(help="Index or UUID of a GPU.", metavar="GPU")]
_MIB = 1 << 20
_SIZE = re.compile(r"(\d{1,16}(?:\.\d{1,6})?)(B|KiB|MiB|GiB|TiB)?")
_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": _MIB, "GiB": 1 << 30, "TiB": 1 << 40}
_MOST_BYTES = 1 << 50
_AGENT_WAIT_S = 5.0


class _Wrong(AllotmentError):
    exit_code = 2


def register(base: typer.Typer) -> None:
    """Add `allot sim`."""
    base.add_typer(app)


def _paths(data_dir: Path | None) -> Paths:
    return Paths(data_dir if data_dir is not None else default_data_dir(os.environ))


@contextmanager
def _machine(data_dir: Path | None) -> Iterator[SimControl]:
    """The installation's simulated machine; ends the command with one sentence otherwise."""
    paths = _paths(data_dir)
    try:
        yield SimControl(paths.simulator_state)
    except FileNotFoundError:
        raise fail(_no_simulator(paths)) from None
    except PermissionError as error:
        raise fail(
            _Wrong(
                f"{error.filename} belongs to another account.", "Run this as the account that started it."
            )
        ) from None
    except (LookupError, ValueError) as error:
        raise fail(
            _Wrong(f"It cannot be done: {error.args[0]}.", "`allot sim show` lists what there is.")
        ) from None


def _no_simulator(paths: Paths) -> AllotmentError:
    if paths.runtime.exists():
        return NotConfigured(
            f"The installation in {paths.data} does not use simulated hardware; there is nothing to drive.",
            "Start one with ./deploy/up --gpus sim:2xA100-80GB and name its folder with --data-dir.",
        )
    return NotConfigured(
        f"{paths.data} holds no Allotment.", "Start one with ./deploy/up, or name its folder with --data-dir."
    )


@app.command()
def show(data_dir: DataDir = None) -> None:
    """The simulated machine as it is now: GPUs, slices, processes."""
    with _machine(data_dir) as control:
        state, processes = control.state(), control.processes()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("GPU", "Model", "Device", "At", "State", "Processes"):
        table.add_column(name, overflow="fold")
    for index, gpu in enumerate(state.gpus):
        table.add_row(str(index), gpu.model, gpu.uuid, "", _condition(gpu), _pids(processes, gpu.uuid))
        for instance in sorted(gpu.instances, key=lambda i: i.start):
            at = f"{instance.start}-{instance.start + instance.size - 1}"
            if not instance.computes:
                table.add_row("", "", "(half-made)", at, "", "")
            for compute in instance.computes:
                table.add_row("", "", compute.uuid, at, "", _pids(processes, compute.uuid))
    screen().print(f"Simulated machine {state.spec}, booted as {state.boot_id}")
    screen().print(table)


def _condition(gpu: SimGpu) -> str:
    trouble = [word for word, true in (("lost", gpu.lost), ("hangs", bool(gpu.hangs))) if true]
    return ", ".join(["MIG" if gpu.mig else "whole", *trouble])


def _pids(processes: list[SimProcess], device: str) -> str:
    return ", ".join(str(p.pid) for p in processes if p.device_uuid == device)


def _percent(text: str) -> Any:
    return typer.Option(min=0, max=100, help=text)


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None or (size := round(float(match[1]) * _UNITS[match[2] or "B"])) > _MOST_BYTES:
        raise fail(_Wrong(f"{text!r} is no size.", "Write for example 4GiB, 512MiB or a number of bytes."))
    return size


@app.command()
def load(
    device: Annotated[str, typer.Argument(help="UUID of a slice; index or UUID of a GPU.", metavar="DEVICE")],
    pid: Annotated[int | None, typer.Option(min=1, help="A real process; without it one is made up.")] = None,
    memory_mib: Annotated[int, typer.Option(min=0, max=10_000_000, help="Memory it uses, in MiB.")] = 1024,
    memory: Annotated[str | None, typer.Option(help="The same as a size: 4GiB, 512MiB.")] = None,
    sm: Annotated[float | None, _percent("How busy it keeps the SMs; 100 if not said.")] = None,
    bandwidth: Annotated[float | None, _percent("Memory bandwidth it uses; as --sm if not said.")] = None,
    power: Annotated[float | None, typer.Option(min=0, max=5000, help="Watts that the GPU draws.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0, max=120, help="Celsius of the GPU.")] = None,
    pcie_rx: Annotated[str, typer.Option(help="What it receives each second: 2GiB.")] = "0",
    pcie_tx: Annotated[str, typer.Option(help="What it sends each second.")] = "0",
    data_dir: DataDir = None,
) -> None:
    """Put a process on a device. A real one counts while it lives, a made-up one until `unload`.

    Given again for the same --pid, it changes what that process does.
    """
    work = SimWork(
        sm_percent=sm,
        bandwidth_percent=bandwidth,
        power_w=power,
        temperature_c=temperature,
        pcie_rx_bytes_per_s=_size(pcie_rx),
        pcie_tx_bytes_per_s=_size(pcie_tx),
    )
    used = memory_mib * _MIB if memory is None else _size(memory)
    with _machine(data_dir) as control:
        number = control.load(device, pid, used, work=work)
    screen().print(f"Process {number} is on {device}.")


@app.command()
def unload(
    device: Annotated[str | None, typer.Argument(help="Only this device's.", metavar="DEVICE")] = None,
    pid: Annotated[int | None, typer.Option(min=1, help="Only this process.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Take processes off their devices."""
    with _machine(data_dir) as control:
        gone = control.unload(device, pid)
    screen().print(f"{gone} process{'es' if gone != 1 else ''} taken away.")


@app.command()
def fault(
    gpu: Gpu,
    xid: Annotated[int, typer.Option(min=1, max=1000, help="79, 119, 120: the GPU is lost.")] = 79,
    data_dir: DataDir = None,
) -> None:
    """The driver reports an Xid error on a GPU. Only a reboot mends a lost one."""
    with _machine(data_dir) as control:
        control.fault(gpu, xid)
    screen().print(f"Xid {xid} was reported on GPU {gpu}.")


@app.command()
def ecc(
    gpu: Gpu,
    corrected: Annotated[int, typer.Option(min=0, max=1_000_000, help="So many more were mended.")] = 0,
    uncorrected: Annotated[int, typer.Option(min=0, max=1_000_000, help="So many more were not.")] = 0,
    data_dir: DataDir = None,
) -> None:
    """The memory of a GPU has errors; they are counted until the machine is restarted."""
    with _machine(data_dir) as control:
        control.ecc(gpu, corrected=corrected, uncorrected=uncorrected)
    screen().print(f"GPU {gpu}: {corrected} corrected and {uncorrected} uncorrected memory errors more.")


@app.command()
def hang(
    gpu: Gpu,
    verb: Annotated[
        str, typer.Option(help="inventory, sample, ensure_slice, destroy_slice, * or an NVML call.")
    ] = "*",
    seconds: Annotated[float | None, typer.Option(min=0, help="For so long; else until `unhang`.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Calls to the driver on this GPU do not return."""
    with _machine(data_dir) as control:
        control.hang(gpu, verb, seconds)
    screen().print(f"GPU {gpu} hangs{f' for {seconds:g} s' if seconds is not None else ''}.")


@app.command()
def unhang(gpu: Gpu, data_dir: DataDir = None) -> None:
    """Calls on this GPU return again, and the agent is told to use it again."""
    with _machine(data_dir) as control:
        control.unhang(gpu)
        uuid = control.uuid_of(gpu)
    agent = UnixAgent(socket_path=_paths(data_dir).agent_socket, deadline_s=_AGENT_WAIT_S)
    try:
        asyncio.run(agent.heal(uuid))
    except AgentUnavailable:
        screen().print(f"GPU {gpu} answers again; no agent runs that could be told so.")
    else:
        screen().print(f"GPU {gpu} answers again.")


@app.command()
def latency(
    seconds: Annotated[float, typer.Argument(min=0, max=3600, help="0 takes it away.")],
    call: Annotated[str, typer.Option(help="Only this NVML call, e.g. nvmlGpuInstanceDestroy.")] = "*",
    data_dir: DataDir = None,
) -> None:
    """Every call to the driver takes so long."""
    with _machine(data_dir) as control:
        control.latency(seconds, call)
    screen().print(f"{'Every call' if call == '*' else call} takes {seconds:g} s.")


@app.command()
def mig(
    gpu: Gpu,
    on: Annotated[bool, typer.Option("--on/--off", help="The mode to switch to.")] = True,
    data_dir: DataDir = None,
) -> None:
    """Switch a GPU's MIG mode, as an operator does; it must have no slices."""
    with _machine(data_dir) as control:
        control.set_mig_mode(gpu, on)
    screen().print(f"MIG is {'on' if on else 'off'} on GPU {gpu}.")


@app.command()
def reboot(data_dir: DataDir = None) -> None:
    """Restart the simulated machine: slices and processes are gone, faults and hangs too."""
    with _machine(data_dir) as control:
        boot_id = control.reboot()
    screen().print(f"The simulated machine was restarted; it is now booted as {boot_id}.")
