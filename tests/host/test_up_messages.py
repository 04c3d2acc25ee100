"""What `up` prints at its end: commands that work as they are copied."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from allotment_hub.host.connection import Connection
from allotment_hub.host.messages import finished
from allotment_hub.host.prepare import Plan
from allotment_hub.paths import Paths
from allotment_testing.decided import host_settings_of, runtime_of

THERE = Connection("http://h", "http://h/services/allotment/", "admin", "p", "demo", "q", "t")


def plan() -> Plan:
    runtime = runtime_of(engine="local", gpus="sim:1xA100-80GB:mig")
    return Plan(settings=host_settings_of(), runtime=runtime, notes=())


def commands(data: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    finished(THERE, plan(), Paths(data), first=True, detach=True)
    lines = capsys.readouterr().out.splitlines()
    words = [word for line in lines for word in line.split(" && ")]
    return [word.strip() for word in words if "./deploy/" in word or ".venv/bin/allot" in word]


@pytest.mark.parametrize("usual", [True, False])
def test_every_command_names_data_that_lie_elsewhere(
    usual: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ALLOTMENT_DATA", str(tmp_path / ("data" if usual else "other")))
    found = commands(tmp_path / "data", capsys)
    assert len(found) == 6
    named = [f"--data-dir {tmp_path / 'data'}" in one for one in found]
    assert named == [not usual] * 6


def test_a_terminal_that_is_closed_meanwhile_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The services run by then: an error here would leave them behind, although the signal says to stop."""
    ours, theirs = os.openpty()
    os.close(ours)
    with os.fdopen(theirs, "w", buffering=1) as terminal:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", terminal)
            with pytest.raises(OSError, match="Input/output error"):
                print("shown", flush=True)
            finished(THERE, plan(), Paths(tmp_path), first=True, detach=False)
        # what it holds back can never be written
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, terminal.fileno())
        os.close(null)
