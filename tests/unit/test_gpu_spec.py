"""`sim:` specifications, the tables behind them, and `allot sim`."""

from __future__ import annotations

from pathlib import Path

import pytest
from allotment.cli import build_app
from allotment_spawner.gpu.simulator.models import known_models, model
from allotment_spawner.gpu.simulator.spec import parse
from allotment_spawner.gpu.simulator.state import SimWork, StateFile
from typer.testing import CliRunner, Result


def test_default_machine() -> None:
    boards = parse("sim:2xA100-80GB:mig,2xA100-80GB:whole")
    assert [(b.model, b.mig, b.group) for b in boards] == [
        ("A100-80GB", True, 0),
        ("A100-80GB", True, 0),
        ("A100-80GB", False, 1),
        ("A100-80GB", False, 1),
    ]


@pytest.mark.parametrize(
    ("text", "models"),
    [
        ("sim:A30", ["A30-24GB"]),
        ("sim:1xh100", ["H100-SXM-80GB"]),
        ("sim:2xH200-141GB:mig", ["H200-141GB"] * 2),
        ("sim:1xRTX-PRO-6000, 1xB200", ["RTX-PRO-6000-Blackwell-96GB", "B200-180GB"]),
    ],
)
def test_names(text: str, models: list[str]) -> None:
    assert [b.model for b in parse(text)] == models


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("A100", "is written sim:"),
        ("sim:", "COUNTxMODEL"),
        ("sim:2xA100:half", "mig or whole"),
        ("sim:2xA200", "A100-80GB"),
        ("sim:0xA100", "1 to 1024"),
        ("sim:1025xA100", "1 to 1024"),
        ("sim:1000xA100,1000xA100", "1 to 1024"),
        ("sim:2x", "COUNTxMODEL"),
        ("sim:2xA100;rm", "COUNTxMODEL"),
    ],
)
def test_mistakes_are_explained(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse(text)


@pytest.mark.parametrize("key", known_models())
def test_tables_are_whole(key: str) -> None:
    board = model(key)
    assert board.axis in (4, 8, 12)
    assert max(p.size for p in board.profiles) == board.axis
    for profile in board.profiles:
        assert 0 < profile.memory_bytes <= board.memory_bytes
        assert any(c.compute_slices == profile.compute_slices for c in profile.compute)


class Sim:
    def __init__(self, data: Path) -> None:
        self.data = data
        self.app = build_app()

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(self.app, ["sim", *arguments, "--data-dir", str(self.data)])


@pytest.fixture
def sim(tmp_path: Path) -> Sim:
    return Sim(tmp_path)


@pytest.fixture
def machine(tmp_path: Path) -> StateFile:
    state = StateFile(tmp_path / "agent" / "sim.json")
    state.create("sim:1xA100-80GB")
    return state


def test_sim_commands_change_the_machine(sim: Sim, machine: StateFile) -> None:
    gpu = machine.read().gpus[0].uuid
    assert gpu in sim("show").output
    assert sim("load", gpu).exit_code == 0
    assert len(machine.read().processes) == 1
    assert "1 process taken" in sim("unload").output
    assert sim("hang", "0", "--verb", "inventory", "--seconds", "5").exit_code == 0
    assert machine.read().gpus[0].hangs[0].until is not None
    assert "no agent runs" in sim("unhang", "0").output
    assert machine.read().gpus[0].hangs == []
    assert sim("fault", gpu, "--xid", "79").exit_code == 0
    assert machine.read().gpus[0].lost
    assert sim("latency", "0.5", "--call", "nvmlGpuInstanceDestroy").exit_code == 0
    assert machine.read().latency == {"nvmlGpuInstanceDestroy": 0.5}
    before = machine.read().boot_id
    assert sim("reboot").exit_code == 0
    assert machine.read().boot_id != before
    assert not machine.read().gpus[0].lost
    assert sim("mig", "0", "--off").exit_code == 0
    assert not machine.read().gpus[0].mig


def test_sim_load_says_what_a_process_does(sim: Sim, machine: StateFile) -> None:
    options = ["--sm", "70", "--memory", "4GiB", "--power", "300", "--bandwidth", "20", "--temperature", "66"]
    assert sim("load", "0", *options, "--pcie-rx", "1.5GiB", "--pcie-tx", "10").exit_code == 0
    [process] = machine.read().processes
    assert process.used_bytes == 4 << 30
    assert process.work == SimWork(
        sm_percent=70,
        bandwidth_percent=20,
        power_w=300,
        temperature_c=66,
        pcie_rx_bytes_per_s=3 << 29,
        pcie_tx_bytes_per_s=10,
    )
    assert sim("load", "0", "--pid", str(process.pid), "--sm", "5").exit_code == 0
    [process] = machine.read().processes
    assert (process.work.sm_percent, process.used_bytes) == (5, 1 << 30)
    assert sim("ecc", "0", "--corrected", "3", "--uncorrected", "1").exit_code == 0
    gpu = machine.read().gpus[0]
    assert (gpu.ecc_corrected, gpu.ecc_uncorrected) == (3, 1)


@pytest.mark.parametrize("size", ["", "4 GB", "-1", "1e9", "99999999TiB", "GiB"])
def test_sim_load_refuses_what_is_no_size(sim: Sim, machine: StateFile, size: str) -> None:
    done = sim("load", "0", f"--memory={size}")
    assert done.exit_code == 2
    assert "is no size" in done.output
    assert machine.read().processes == []


@pytest.mark.parametrize("option", ["--sm=101", "--bandwidth=-1", "--power=-3", "--temperature=900"])
def test_sim_load_refuses_what_cannot_be(sim: Sim, machine: StateFile, option: str) -> None:
    assert sim("load", "0", option).exit_code == 2
    assert machine.read().processes == []


@pytest.mark.parametrize("arguments", [("load", "MIG-none"), ("hang", "7"), ("fault", "GPU-none")])
def test_sim_names_what_is_not_there(sim: Sim, machine: StateFile, arguments: tuple[str, ...]) -> None:
    done = sim(*arguments)
    assert done.exit_code == 2
    assert "simulated machine has no" in done.output


def test_sim_says_plainly_when_there_is_nothing_to_drive(sim: Sim, tmp_path: Path) -> None:
    assert "holds no Allotment" in sim("show").output
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "runtime.json").write_text("{}")
    done = sim("reboot")
    assert done.exit_code == 2
    assert "does not use simulated hardware" in done.output
