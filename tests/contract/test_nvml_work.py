"""The simulator's load: what `load` says is what the calls answer, over time as real counters do."""

from __future__ import annotations

import subprocess
import sys
from ctypes import byref
from pathlib import Path
from typing import Any

import pytest
from allotment_spawner.core.samples import DeviceSample
from allotment_spawner.gpu.nvml.calls import compute_profile, discover_profiles
from allotment_spawner.gpu.nvml.events import XidWatcher
from allotment_spawner.gpu.nvml.reader import NvmlReader
from allotment_spawner.gpu.nvml.samples import Sampler
from allotment_spawner.gpu.simulator.control import SimControl
from allotment_spawner.gpu.simulator.module import SimulatedNvml
from allotment_spawner.gpu.simulator.state import SimWork, StateFile

GIB = 1 << 30


class Machine:
    """Simulated boards, and one sampler of them, in a time that only moves when told."""

    def __init__(self, folder: Path, spec: str) -> None:
        self.now = 1000.0
        self.state = StateFile(folder / "sim.json")
        self.state.create(f"sim:{spec}")
        self.nvml: Any = SimulatedNvml(state=self.state, now=lambda: self.now)
        self.nvml.nvmlInit()
        self.control = SimControl(self.state.path, now=lambda: self.now)
        self.sampler = self.another()

    def another(self) -> Sampler:
        """As after a restart of the agent's worker."""
        reader = NvmlReader(
            nvml=self.nvml, node="n", boot_id=lambda: "b", simulated=True, owns=lambda *_: False
        )
        xids = XidWatcher(nvml=self.nvml)
        return Sampler(nvml=self.nvml, reader=reader, xids=xids, clock=lambda: self.now)

    def cut(self, profile: str, start: int, gpu: int = 0) -> str:
        board = self.nvml.nvmlDeviceGetHandleByIndex(gpu)
        wanted = next(p for p in discover_profiles(self.nvml, board) if p.name == profile)
        place = self.nvml.c_nvmlGpuInstancePlacement_t(start, wanted.size)
        made = self.nvml.nvmlDeviceCreateGpuInstanceWithPlacement(board, wanted.profile_id, byref(place))
        compute = self.nvml.nvmlGpuInstanceCreateComputeInstance(made, compute_profile(self.nvml, made))
        return str(self.nvml.nvmlDeviceGetUUID(self.nvml.nvmlComputeInstanceGetInfo_v2(compute).device))

    def uncut(self, uuid: str) -> None:
        handle = self.nvml.nvmlDeviceGetHandleByUUID(uuid)
        board = self.nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
        instance = self.nvml.nvmlDeviceGetGpuInstanceById(board, self.nvml.nvmlDeviceGetGpuInstanceId(handle))
        # The MIG device's handle stands for its compute instance.
        self.nvml.nvmlComputeInstanceDestroy(handle)
        self.nvml.nvmlGpuInstanceDestroy(instance)

    def sample(self, index: int = 0, *, after_s: float = 5.0) -> dict[str, DeviceSample]:
        self.now += after_s
        devices, unread = self.sampler.sample(index)
        assert unread == {}
        return {d.device_uuid: d for d in devices}

    @property
    def gpu(self) -> str:
        return self.state.read().gpus[0].uuid


def test_a_whole_ampere_gpu_by_its_rates(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "1xA100-80GB:whole")
    idle = machine.sample()[machine.gpu]
    assert (idle.sm_percent, idle.memory_bandwidth_percent, idle.processes) == (0, 0, 0)
    assert (idle.power_w, idle.clock_reasons, idle.sm_clock_hz) == (55, ("gpu_idle",), 210_000_000)
    work = SimWork(sm_percent=70, bandwidth_percent=25, power_w=300, pcie_rx_bytes_per_s=2 * GIB)
    machine.control.load("0", used_bytes=4 * GIB, work=work)
    busy = machine.sample()[machine.gpu]
    assert (busy.sm_percent, busy.memory_bandwidth_percent, busy.power_w) == (70, 25, 300)
    assert (busy.memory_used_bytes, busy.memory_total_bytes) == (4 * GIB, 80 * GIB)
    assert (busy.pcie_rx_bytes_per_s, busy.pcie_tx_bytes_per_s) == (2 * GIB, 0)
    assert (busy.sm_clock_hz, busy.clock_reasons, busy.processes) == (1_410_000_000, (), 1)


def test_a_hopper_slice_by_gpm_and_an_ampere_slice_not(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "1xH100:mig,1xA100-80GB:mig")
    hopper, ampere = machine.cut("1g.10gb", 0), machine.cut("1g.10gb", 3, gpu=1)
    for device in (hopper, ampere):
        machine.control.load(device, used_bytes=3 * GIB, work=SimWork(sm_percent=60, bandwidth_percent=10))
    assert machine.sample()[hopper].sm_percent is None
    found = machine.sample()[hopper]
    assert (found.sm_percent, found.memory_bandwidth_percent) == (60, 10)
    assert (found.memory_used_bytes, found.processes, found.power_w) == (3 * GIB, 1, None)
    old = machine.sample(1)[ampere]
    assert (old.sm_percent, old.memory_bandwidth_percent) == (None, None)
    assert (old.memory_used_bytes, old.processes) == (3 * GIB, 1)
    parent = machine.sample()[machine.gpu]
    assert (parent.sm_percent, parent.processes, parent.memory_used_bytes) == (None, 1, 3 * GIB)


def test_a_whole_hopper_gpu_by_gpm(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "1xH100:whole")
    machine.control.load("0", work=SimWork(sm_percent=33, pcie_tx_bytes_per_s=GIB))
    assert machine.sample()[machine.gpu].sm_percent is None
    found = machine.sample()[machine.gpu]
    assert (found.sm_percent, found.pcie_tx_bytes_per_s) == (33, GIB)


def test_gpm_samples_too_close_or_too_far_apart(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "1xH100:whole")
    machine.sample()
    machine.control.load("0", work=SimWork(sm_percent=50))
    assert machine.sample()[machine.gpu].sm_percent == 50
    machine.control.unload()
    # The driver has no new numbers yet, so the last ones stand.
    assert machine.sample(after_s=0.05)[machine.gpu].sm_percent == 50
    assert machine.sample()[machine.gpu].sm_percent == 0
    # Over an hour's mean nothing can be said of now; then it goes on.
    assert machine.sample(after_s=3600)[machine.gpu].sm_percent is None
    assert machine.sample()[machine.gpu].sm_percent == 0


def test_an_instance_cut_again_under_the_same_id_starts_anew(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "1xH100:mig")
    first = machine.cut("1g.10gb", 0)
    machine.sample()
    assert machine.sample()[first].sm_percent == 0
    machine.uncut(first)
    second = machine.cut("1g.10gb", 0)
    assert second != first
    machine.control.load(second, work=SimWork(sm_percent=80))
    seen = machine.sample()
    assert first not in seen
    assert seen[second].sm_percent is None
    assert machine.sample()[second].sm_percent == 80


def test_gpm_buffers_are_given_back(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "1xH100:mig")
    for _ in range(5):
        device = machine.cut("1g.10gb", 0)
        machine.sample()
        machine.sample()
        machine.uncut(device)
    machine.sample()
    assert machine.nvml._samples == {}


def test_energy_is_power_over_time(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "1xA100-80GB:whole")
    begin = machine.sample()[machine.gpu].energy_j
    assert begin is not None
    machine.now += 10
    pid = machine.control.load("0", work=SimWork(power_w=300))
    machine.now += 100
    machine.control.unload(pid=pid)
    machine.now += 20
    after = machine.sample(after_s=0)[machine.gpu].energy_j
    assert after == pytest.approx(begin + 10 * 55 + 100 * 300 + 20 * 55)


def test_energy_never_falls(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "1xA100-80GB:whole")
    machine.sample()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        machine.control.load("0", process.pid, work=SimWork(power_w=400))
        machine.sample(after_s=100)
        process.communicate(b"\n")
    # It ended without a word to the simulator: what it drew stays counted, from now on it is idle.
    ended = machine.sample(after_s=0)[machine.gpu].energy_j
    later = machine.sample(after_s=10)[machine.gpu].energy_j
    assert ended is not None
    assert later == pytest.approx(ended + 10 * 55)
    assert ended >= 100 * 400
    # A clock that is set back adds nothing, and takes nothing away.
    assert machine.sample(after_s=-50)[machine.gpu].energy_j == pytest.approx(later)
    machine.sampler = machine.another()
    assert machine.sample(after_s=55)[machine.gpu].energy_j >= later - 1e-6  # type: ignore[operator]


def test_heat_and_power_hold_the_clock_down(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "1xA100-80GB:whole")
    machine.control.load("0", work=SimWork(power_w=1000, temperature_c=90))
    seen = machine.sample()[machine.gpu]
    assert seen.power_w == 400
    assert seen.temperature_c == 90
    assert seen.clock_reasons == ("sw_power_cap", "sw_thermal_slowdown")
    assert seen.sm_clock_hz is not None
    assert seen.sm_clock_hz < 1_410_000_000


def test_errors_of_memory_and_xids(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "2xA100-80GB:whole")
    machine.sample()
    machine.control.ecc("0", corrected=3, uncorrected=1)
    machine.control.fault("0", 31)
    machine.control.fault("0", 48)
    seen = machine.sample()[machine.gpu]
    assert (seen.ecc_corrected, seen.ecc_uncorrected) == (3, 1)
    assert seen.xids == (31, 48)
    assert machine.sample()[machine.gpu].xids == ()
    machine.control.reboot()
    assert machine.sample()[machine.gpu].ecc_corrected == 0


def test_the_same_process_may_change_its_load(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "1xA100-80GB:whole")
    pid = machine.control.load("0", work=SimWork(sm_percent=10))
    assert machine.control.load("0", pid, work=SimWork(sm_percent=90)) == pid
    assert machine.sample()[machine.gpu].sm_percent == 90
    assert len(machine.control.processes()) == 1


def test_gpm_calls_answer_what_hardware_answers(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "1xH100:mig,1xA100-80GB:whole")
    nvml = machine.nvml
    hopper, ampere = (nvml.nvmlDeviceGetHandleByIndex(i) for i in (0, 1))
    assert nvml.nvmlGpmQueryDeviceSupport(hopper).isSupportedDevice
    assert not nvml.nvmlGpmQueryDeviceSupport(ampere).isSupportedDevice
    sample = nvml.nvmlGpmSampleAlloc()
    for board in (hopper, ampere):
        with pytest.raises(nvml.NVMLError_NotSupported):
            nvml.nvmlGpmSampleGet(board, sample)
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlGpmMigSampleGet(hopper, 7, sample)
    request: Any = nvml.c_nvmlGpmMetricsGet_t()
    request.version, request.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 1
    request.sample1 = request.sample2 = sample
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlGpmMetricsGet(request)
    nvml.nvmlGpmSampleFree(sample)
