"""On the PYTHONPATH of a test installation's services: kills a named process at a named step, once.

Product code has no hook for this; the steps are its own `on_step` calls, which do nothing elsewhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from pathlib import Path

__all__: list[str] = []


def _service() -> str | None:
    """Which of our services this process is going to be, by its command line."""
    words = " ".join(sys.orig_argv)
    if "allotment-broker" in words:
        return "broker"
    if "-m jupyterhub" in words and "singleuser" not in words:
        return "hub"
    return None


def _strike(order: Path, service: str, step: str) -> None:
    """`order` is {"service", "step", "victims": [service, …]}; whoever removes it first carries it out."""
    try:
        told = json.loads(order.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return
    if (told["service"], told["step"]) != (service, step):
        return
    try:
        order.rename(order.with_suffix(".done"))
    except FileNotFoundError:
        return
    for victim in sorted(told["victims"], key=lambda name: name == service):
        if victim == "container":
            _remove_containers(_installation(order.parent / "data" / "run"))
            continue
        for pid in _pids(order.parent / "data" / "run", victim, service):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _pids(run: Path, victim: str, service: str) -> list[int]:
    if victim == service:
        return [os.getpid()]
    if victim == "workload":
        return _workloads(f"ALLOTMENT_INSTALLATION={_installation(run)}".encode())
    state = json.loads((run / "supervisor.json").read_text(encoding="utf-8"))
    return [int(state["services"][victim]["pid"])]


def _installation(run: Path) -> str:
    return str(json.loads((run / "runtime.json").read_text(encoding="utf-8"))["installation"])


def _remove_containers(installation: str) -> None:
    """Killed and taken away by somebody else, whatever state they are in."""
    import docker  # noqa: PLC0415

    with contextlib.closing(docker.APIClient(os.environ["TESTS_CRASH_ENGINE"], version="1.41")) as client:
        label = f"allotment.installation={installation}"
        for entry in client.containers(all=True, filters={"label": [label]}):
            with contextlib.suppress(docker.errors.NotFound):
                client.remove_container(entry["Id"], force=True)


def _workloads(mark: bytes) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def _install(service: str, order: Path) -> None:
    def on_step(step: str) -> None:
        _strike(order, service, step)

    if service == "broker":
        from allotment_hub.broker import factory  # noqa: PLC0415

        build = factory.build_broker
        factory.build_broker = lambda **parts: build(**{**parts, "on_step": on_step})
    else:
        from allotment_spawner.spawners.mixin import GpuSpawnerMixin  # noqa: PLC0415

        GpuSpawnerMixin.on_step = staticmethod(on_step)


_found, _order = _service(), os.environ.get("TESTS_CRASH_ORDER")
if _found is not None and _order is not None:
    _install(_found, Path(_order))
