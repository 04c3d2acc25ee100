"""`allot heal` on a running installation with simulated GPUs."""

from __future__ import annotations

from allotment.cli import build_app
from allotment_spawner.gpu.simulator.control import SimControl
from allotment_testing.installation import Installation, wait_until
from typer.testing import CliRunner


def problem_of(installation: Installation) -> str | None:
    found: str | None = installation.broker("fleet").json()["gpus"][0]["problem"]
    return found


def test_a_mended_gpu_is_used_again(running: Installation) -> None:
    control = SimControl(running.paths.simulator_state)
    control.hang("0")
    wait_until(lambda: problem_of(running), what="the hang is seen")
    still = CliRunner().invoke(build_app(), ["heal", "0", "--data-dir", str(running.data)])
    assert still.exit_code == 1, still.output
    assert "still out of order" in " ".join(still.output.split())
    control.unhang("0")
    well = CliRunner().invoke(build_app(), ["heal", "0", "--data-dir", str(running.data)])
    assert (well.exit_code, "in use again" in well.output) == (0, True), well.output
    wait_until(lambda: problem_of(running) is None, what="the broker offers it again")


def test_an_unknown_gpu_is_named(running: Installation) -> None:
    say = CliRunner().invoke(build_app(), ["heal", "9", "--data-dir", str(running.data)])
    assert say.exit_code == 2
    assert "There is no GPU 9 here" in say.output


def test_without_the_agent_it_says_what_to_do(running: Installation) -> None:
    running.down()
    say = CliRunner().invoke(build_app(), ["heal", "0", "--data-dir", str(running.data)])
    assert say.exit_code == 2
    assert "./deploy/up starts it" in " ".join(say.output.split())
