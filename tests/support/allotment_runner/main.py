"""The command line of ./tests/run."""

from __future__ import annotations

import subprocess
import sys
import time

from allotment_runner.environment import child_environment, ensure_images, ensure_node_packages, ensure_venv
from allotment_runner.layers import Outcome, collect_gpu_tests, run_group
from allotment_runner.places import BENCHES, GROUPS, LAYERS, ROOT, VENV, has_tests
from allotment_runner.system import driver_answers, ensure_packages, need_engine

__all__ = ["main", "total"]

FULL = {"ALLOTMENT_CRASH_RUNS": "2000", "ALLOTMENT_KILL_MATRIX": "full", "ALLOTMENT_MONEY_LIVES": "2000"}


def main(arguments: list[str], *, usage: str) -> int:
    """Exit 0 when everything passed, 1 when something failed, 2 for wrong use."""
    if arguments and arguments[0] in {"-h", "--help", "help"}:
        print(usage)
        return 0
    if arguments and arguments[0] in BENCHES:
        return _bench(arguments[0], arguments[1:])
    names, options = _split(arguments)
    unknown = [name for name in names if name not in LAYERS and name != "full"]
    if unknown:
        known = " ".join((*LAYERS, "full", *BENCHES))
        print(f"There is no layer {unknown[0]}. Choose from: {known}", file=sys.stderr)
        return 2
    everything = not names or "full" in names
    return _layers(
        [layer for layer in LAYERS if everything or layer in names],
        options=options,
        variables=FULL if "full" in names else {},
        everything=everything,
    )


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    if "--" in arguments:
        at = arguments.index("--")
        return arguments[:at], arguments[at + 1 :]
    return arguments, []


def _prepare(names: list[str]) -> None:
    ensure_packages(names)
    ensure_venv()
    ensure_node_packages()
    if need_engine(names):
        ensure_images()


def _bench(name: str, options: list[str]) -> int:
    script = ROOT / "tests" / "bench" / BENCHES[name]
    _prepare([name])
    command = [str(VENV / "bin" / "python"), str(script), *options]
    environment = child_environment(PYTHONPATH=str(ROOT / "tests" / "support"))
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def _layers(layers: list[str], *, options: list[str], variables: dict[str, str], everything: bool) -> int:
    began = time.monotonic()
    missing = [layer for layer in layers if not has_tests(layer)]
    layers = [layer for layer in layers if layer not in missing]
    _prepare(layers)
    gpu = driver_answers()
    outcomes: list[Outcome] = []
    for group in GROUPS:
        chosen = [layer for layer in group if layer in layers and (gpu or layer != "gpu")]
        if chosen:
            outcomes += run_group(chosen, options=options, variables=variables, gpu=gpu)
    if not gpu and (everything or "gpu" in layers):
        _say_deselected()
    for layer in missing:
        print(f"tests/{layer} holds no tests")
    return total(outcomes, time.monotonic() - began)


def _say_deselected() -> None:
    names = collect_gpu_tests()
    if names:
        print(f"Deselected, because no NVIDIA driver answers on this machine ({len(names)}):")
        for name in names:
            print(f"  {name}")


def total(outcomes: list[Outcome], seconds: float) -> int:
    for outcome in outcomes:
        notes = f"  ({'; '.join(outcome.notes)})" if outcome.notes else ""
        counts = f"{outcome.passed:5d} passed {outcome.failed:3d} failed"
        print(f"{outcome.layer:10} {counts}  {outcome.seconds:7.1f} s{notes}")
    passed = sum(outcome.passed for outcome in outcomes)
    failed = sum(outcome.failed for outcome in outcomes)
    print(f"{'all':10} {int(seconds) // 60} min {int(seconds) % 60} s")
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed else 0
