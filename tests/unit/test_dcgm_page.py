"""Pages of DCGM exporters, old and new: the same numbers in our units, and nothing that is not ours."""

from __future__ import annotations

import time

import pytest
from allotment_hub.broker.metrics.dcgm import filled, readings
from allotment_spawner.core.inventory import Gpu, NodeInventory, Slice
from allotment_spawner.core.samples import DeviceSample
from hypothesis import given
from hypothesis import strategies as st

MIG_GPU = Gpu(
    uuid="GPU-a",
    index=0,
    model="A100",
    memory_bytes=80 << 30,
    mig=True,
    axis=8,
    slices=(
        Slice("MIG-1", "1g.10gb", 0, 1, 7),
        Slice("MIG-2", "1g.10gb+me", 1, 1, 8),
        Slice("MIG-3", "3g.40gb", 4, 4, 2),
        Slice(None, "1g.10gb", 2, 1, 9),
    ),
)
WHOLE_GPU = Gpu(uuid="GPU-b", index=1, model="A100", memory_bytes=80 << 30, mig=False, axis=0)
INVENTORY = NodeInventory("n", "b", False, "580", (MIG_GPU, WHOLE_GPU))

SLICE = 'gpu="0",UUID="GPU-a",device="nvidia0",modelName="NVIDIA A100",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"'
WHOLE = 'gpu="1",UUID="GPU-b",pci_bus_id="00000000:0F:00.0",modelName="NVIDIA A100",Hostname="n"'


def page(*rows: str) -> str:
    return "".join(f"# HELP x (in %)\n# TYPE x gauge\n{row}\n" for row in rows)


def told(device: str, *rows: str) -> DeviceSample:
    return readings(page(*rows), INVENTORY)[device]


OLD = (
    f"DCGM_FI_DEV_GPU_UTIL{{{WHOLE}}} 87",
    f"DCGM_FI_DEV_MEM_COPY_UTIL{{{WHOLE}}} 40",
    f"DCGM_FI_DEV_FB_USED{{{WHOLE}}} 4096",
    f"DCGM_FI_DEV_FB_TOTAL{{{WHOLE}}} 81920",
    f"DCGM_FI_DEV_POWER_USAGE{{{WHOLE}}} 301.250000",
    f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{WHOLE}}} 5000000",
    f"DCGM_FI_DEV_GPU_TEMP{{{WHOLE}}} 61",
    f"DCGM_FI_DEV_SM_CLOCK{{{WHOLE}}} 1410",
    f"DCGM_FI_DEV_PCIE_RX_THROUGHPUT{{{WHOLE}}} 2048",
    f"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{{{WHOLE}}} 4",
    f"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL{{{WHOLE}}} 3",
    f"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{{WHOLE}}} 0",
)
NEW = (
    f"DCGM_FI_DEV_GPU_UTIL_RATIO{{{WHOLE}}} 0.870000",
    f"DCGM_FI_DEV_MEMORY_UTIL_RATIO{{{WHOLE}}} 0.400000",
    f"DCGM_FI_DEV_FB_USED_BYTES{{{WHOLE}}} 4294967296",
    f"DCGM_FI_DEV_FB_CAPACITY_BYTES{{{WHOLE}}} 85899345920",
    f"DCGM_FI_DEV_BOARD_POWER_WATTS{{{WHOLE}}} 301.250000",
    f"DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL{{{WHOLE}}} 5000",
    f"DCGM_FI_DEV_GPU_TEMP_CELSIUS{{{WHOLE}}} 61",
    f"DCGM_FI_DEV_SM_CLOCK_HERTZ{{{WHOLE}}} 1410000000",
    f"DCGM_FI_PROF_PCIE_RX_BYTES{{{WHOLE}}} 2097152",
    f"DCGM_FI_DEV_CLOCKS_EVENT_REASONS{{{WHOLE}}} 4",
    f"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL{{{WHOLE}}} 3",
    f"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{{WHOLE}}} 0",
)
FIRST = (
    'dcgm_gpu_utilization{gpu="1",uuid="GPU-b"} 87',
    'dcgm_mem_copy_utilization{gpu="1",uuid="GPU-b"} 40',
    'dcgm_fb_used{gpu="1",uuid="GPU-b"} 4096',
    f"DCGM_FI_DEV_FB_TOTAL{{{WHOLE}}} 81920",
    'dcgm_power_usage{gpu="1",uuid="GPU-b"} 301.25',
    'dcgm_total_energy_consumption{gpu="1",uuid="GPU-b"} 5000000 1700000000000',
    'dcgm_gpu_temp{gpu="1",uuid="GPU-b"} 61',
    'dcgm_sm_clock{gpu="1",uuid="GPU-b"} 1410',
    'dcgm_pcie_rx_throughput{gpu="1",uuid="GPU-b"} 2048',
    f"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{{{WHOLE}}} 4",
    'dcgm_ecc_sbe_volatile_total{gpu="1",uuid="GPU-b"} 3',
    'dcgm_ecc_dbe_volatile_total{gpu="1",uuid="GPU-b"} 0',
)


@pytest.mark.parametrize("rows", [OLD, NEW, FIRST], ids=["2.x to 4.8", "4.9", "1.x"])
def test_all_generations_of_names_and_units_say_the_same(rows: tuple[str, ...]) -> None:
    found = told("GPU-b", *rows)
    assert found == DeviceSample(
        gpu_uuid="GPU-b",
        device_uuid="GPU-b",
        sm_percent=pytest.approx(87),  # type: ignore[arg-type]
        memory_used_bytes=4 << 30,
        memory_total_bytes=80 << 30,
        memory_bandwidth_percent=pytest.approx(40),  # type: ignore[arg-type]
        power_w=301.25,
        energy_j=5000,
        temperature_c=61,
        sm_clock_hz=1_410_000_000,
        pcie_rx_bytes_per_s=2 << 20,
        clock_reasons=("sw_power_cap",),
        ecc_corrected=3,
        ecc_uncorrected=0,
    )


@pytest.mark.parametrize(
    ("sm", "dram"),
    [
        ("DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE"),
        ("DCGM_FI_PROF_SM_UTIL_RATIO", "DCGM_FI_PROF_DRAM_UTIL_RATIO"),
        ("dcgm_fi_prof_sm_active", "dcgm_fi_prof_dram_active"),
    ],
)
def test_a_slice_by_its_instance(sm: str, dram: str) -> None:
    found = told("MIG-1", f"{sm}{{{SLICE}}} 0.625000", f"{dram}{{{SLICE}}} 0.250000")
    assert (found.gpu_uuid, found.sm_percent, found.memory_bandwidth_percent) == ("GPU-a", 62.5, 25)


def test_busy_sms_count_before_a_busy_engine_in_any_order() -> None:
    rows = (f"DCGM_FI_PROF_SM_ACTIVE{{{SLICE}}} 0.5", f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{SLICE}}} 0.9")
    assert told("MIG-1", *rows).sm_percent == told("MIG-1", *rows[::-1]).sm_percent == 50
    assert told("MIG-1", rows[1]).sm_percent == 90


@pytest.mark.parametrize(
    "labels",
    [
        'UUID="GPU-a",GPU_I_PROFILE="2g.20gb",GPU_I_ID="7"',  # what stood there before ours
        'UUID="GPU-a",GPU_I_PROFILE="1g.10gb",GPU_I_ID="13"',
        'UUID="GPU-a",GPU_I_PROFILE="1g.10gb",GPU_I_ID="seven"',
        'UUID="GPU-a",GPU_I_PROFILE="1g.10gb",GPU_I_ID="9"',  # half-made: no device yet
        'UUID="GPU-other",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"',
        'gpu="0",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"',
        'UUID="GPU-a"',  # the GPU's own utilisation is nobody's in MIG mode
    ],
)
def test_what_is_not_ours_is_nobody_s(labels: str) -> None:
    assert readings(page(f"DCGM_FI_PROF_SM_ACTIVE{{{labels}}} 0.5"), INVENTORY) == {}


def test_a_profile_with_media_engines_is_named_without_them() -> None:
    labels = 'UUID="GPU-a",GPU_I_PROFILE="1g.10gb",GPU_I_ID="8"'
    assert told("MIG-2", f"DCGM_FI_PROF_SM_ACTIVE{{{labels}}} 0.5").sm_percent == 50


def test_a_slice_is_not_given_what_is_its_gpu_s() -> None:
    rows = (
        f"DCGM_FI_DEV_POWER_USAGE{{{SLICE}}} 300",
        f"DCGM_FI_DEV_GPU_TEMP{{{SLICE}}} 60",
        f"DCGM_FI_DEV_FB_USED{{{SLICE}}} 1024",
    )
    assert told("MIG-1", *rows) == DeviceSample(
        gpu_uuid="GPU-a", device_uuid="MIG-1", memory_used_bytes=1 << 30
    )


@pytest.mark.parametrize(
    "value",
    ["9223372036854775794", "140737488355328.000000", "NaN", "+Inf", "-1", "1e400", "", "x", "2147483632"],
)
def test_blank_and_senseless_values_are_unknown(value: str) -> None:
    assert readings(page(f"DCGM_FI_PROF_SM_ACTIVE{{{SLICE}}} {value}"), INVENTORY) == {}


@pytest.mark.parametrize(
    "name", ["GPU_TEMP", "SM_CLOCK", "FB_USED", "ECC_SBE_VOL_TOTAL", "CLOCK_THROTTLE_REASONS", "POWER_USAGE"]
)
@pytest.mark.parametrize("blank", [0x7FFFFFF0, 0x7FFFFFF1, 0x7FFFFFF2, 0x7FFFFFF3])
def test_dcgms_blank_of_32_bits_is_no_temperature(name: str, blank: int) -> None:
    assert readings(page(f"DCGM_FI_DEV_{name}{{{WHOLE}}} {blank}"), INVENTORY) == {}


def test_a_full_load_may_come_out_a_little_above_one() -> None:
    assert told("MIG-1", f"DCGM_FI_PROF_SM_ACTIVE{{{SLICE}}} 1.003").sm_percent == 100


@pytest.mark.parametrize(("text", "percent"), [("1", 1), ("87", 87), ("1.000000", 100), ("0.010000", 1)])
def test_a_ratio_by_name_that_is_a_percent_by_its_form(text: str, percent: float) -> None:
    """DCGM 4.6 gave the whole percents the name that a ratio has from 4.7 on."""
    assert told("GPU-b", f"DCGM_FI_DEV_GPU_UTIL_RATIO{{{WHOLE}}} {text}").sm_percent == pytest.approx(percent)


def test_labels_with_quotes_braces_and_commas() -> None:
    labels = r'UUID="GPU-a",pod="a\"},{b",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7",namespace="x, y"'
    assert told("MIG-1", f"DCGM_FI_PROF_SM_ACTIVE{{{labels}}} 0.5").sm_percent == 50


def test_gaps_are_filled_and_what_is_known_stays() -> None:
    ours = DeviceSample(gpu_uuid="GPU-a", device_uuid="MIG-1", memory_used_bytes=5, processes=0)
    theirs = DeviceSample(gpu_uuid="GPU-a", device_uuid="MIG-1", memory_used_bytes=9, sm_percent=40)
    assert filled(ours, theirs) == DeviceSample(
        gpu_uuid="GPU-a", device_uuid="MIG-1", memory_used_bytes=5, processes=0, sm_percent=40
    )


@given(st.text(max_size=400))
def test_no_text_breaks_the_reader(text: str) -> None:
    assert readings(text, INVENTORY) == {} or "DCGM" in text.upper()


@given(st.text(max_size=60), st.text(max_size=20))
def test_no_row_breaks_the_reader(labels: str, value: str) -> None:
    for sample in readings(f"DCGM_FI_PROF_SM_ACTIVE{{{labels}}} {value}", INVENTORY).values():
        assert sample.sm_percent is None or 0 <= sample.sm_percent <= 100


def test_a_hostile_row_takes_no_time() -> None:
    labels = 'UUID="' + "\\" * 200_000 + 'x="' * 50_000
    began = time.monotonic()
    readings(f"DCGM_FI_PROF_SM_ACTIVE{{{labels}}} 0.5\n" * 3, INVENTORY)
    assert time.monotonic() - began < 5
