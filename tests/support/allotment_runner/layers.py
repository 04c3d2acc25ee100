"""Run one layer with pytest and count what passed and failed."""

from __future__ import annotations

import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

from allotment_runner.environment import child_environment
from allotment_runner.places import LIMIT_S, RESULTS, ROOT, VENV

__all__ = ["Outcome", "collect_gpu_tests", "read_counts", "run_group"]

PYTEST = [str(VENV / "bin" / "python"), "-m", "pytest"]
NO_TESTS = 5


@dataclass(frozen=True, slots=True)
class Outcome:
    """One layer: counts, seconds, and lines to say about it."""

    layer: str
    passed: int
    failed: int
    seconds: float
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Started:
    layer: str
    process: subprocess.Popen[bytes]
    began: float
    log: Path | None
    scratch: Path
    notes: list[str] = field(default_factory=list)


def run_group(
    layers: list[str], *, options: list[str], variables: dict[str, str], gpu: bool
) -> list[Outcome]:
    """Run these layers side by side; one alone writes to the terminal, several are printed as they end."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    started = [_start(layer, options, variables, gpu=gpu, alone=len(layers) == 1) for layer in layers]
    with ThreadPoolExecutor(len(started)) as pool:
        waited = list(pool.map(_wait, started))
    return [_outcome(item, code, seconds) for item, (code, seconds) in zip(started, waited, strict=True)]


def _start(layer: str, options: list[str], variables: dict[str, str], *, gpu: bool, alone: bool) -> _Started:
    report = RESULTS / f"{layer}.xml"
    report.unlink(missing_ok=True)
    command = [*PYTEST, f"tests/{layer}", "-q", f"--junitxml={report}", "-o", "junit_family=xunit2"]
    command += ["--durations=5", "--durations-min=5"]
    if not gpu:
        command += ["-m", "not gpu"]
    log = None if alone else RESULTS / f"{layer}.log"
    # its own: pytest tidies the shared one, and two that do so at the same time stumble over each other
    scratch = Path(tempfile.mkdtemp(prefix="allot-"))
    environment = child_environment(PYTEST_DEBUG_TEMPROOT=str(scratch), **variables)
    if log is None:
        print(f"── {layer}", flush=True)
        process = subprocess.Popen([*command, *options], cwd=ROOT, env=environment)
    else:
        with log.open("wb") as target:
            process = subprocess.Popen(
                [*command, *options], cwd=ROOT, env=environment, stdout=target, stderr=subprocess.STDOUT
            )
    return _Started(layer, process, time.monotonic(), log, scratch)


def _wait(item: _Started) -> tuple[int, float]:
    """Exit code and seconds; what takes too long is ended so that its fixtures stop their daemons."""
    try:
        code = item.process.wait(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        item.process.terminate()
        try:
            item.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            item.process.kill()
            item.process.wait()
        code = -1
        item.notes.append(f"stopped after {LIMIT_S:.0f} s")
    return code, time.monotonic() - item.began


def _outcome(item: _Started, code: int, seconds: float) -> Outcome:
    if item.log is not None:
        print(f"── {item.layer}\n{item.log.read_text(errors='replace')}", flush=True)
    passed, failed = read_counts(RESULTS / f"{item.layer}.xml")
    if code == NO_TESTS and item.layer == "gpu":
        return Outcome(item.layer, 0, 0, seconds, ("deselected",))
    if code != 0 and failed == 0:
        failed = 1
        item.notes.append(f"pytest ended with code {code}")
    if not failed:
        # not shutil's: some tests make folders deeper than Python can call itself
        subprocess.run(["rm", "-rf", "--one-file-system", "--", str(item.scratch)], check=False)
    return Outcome(item.layer, passed, failed, seconds, tuple(item.notes))


def read_counts(report: Path) -> tuple[int, int]:
    """(passed, failed). A skipped or expected failure counts as failed: nothing may be skipped."""
    if not report.exists():
        return 0, 0
    passed = failed = 0
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - our own pytest wrote it
        if any(case.find(kind) is not None for kind in ("failure", "error", "skipped")):
            failed += 1
        else:
            passed += 1
    return passed, failed


def collect_gpu_tests() -> list[str]:
    """Names of the tests that only a machine with an NVIDIA driver can run."""
    command = [*PYTEST, "tests", "--collect-only", "-q", "-m", "gpu", "-p", "no:cacheprovider"]
    said = subprocess.run(
        command, cwd=ROOT, env=child_environment(), capture_output=True, text=True, check=False
    ).stdout
    return [line for line in said.splitlines() if "::" in line]
