"""CDI entries: content, atomic writes, and what is left alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from allotment_spawner.gpu.cdi import CdiDevice, CdiEntries, capability_minors

DEVICE = CdiDevice(uuid="MIG-11111111-2222-3333-4444-555555555555", gpu_minor=0, instance_id=1, compute_id=0)
BASE = {
    "cdiVersion": "0.6.0",
    "kind": "nvidia.com/gpu",
    "devices": [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}],
    "containerEdits": {
        "deviceNodes": [{"path": "/dev/nvidiactl"}],
        "mounts": [{"hostPath": "/usr/lib/libcuda.so"}],
    },
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cdi"


def entries(folder: Path, tmp_path: Path, *bases: Path) -> CdiEntries:
    return CdiEntries(folder=folder, base_folders=bases, capabilities=tmp_path / "none")


def written(folder: Path) -> dict[str, Any]:
    [path] = folder.glob("*.json")
    content: dict[str, Any] = json.loads(path.read_text())
    return content


@pytest.mark.parametrize(
    ("device", "minors"),
    [
        (DEVICE, (12, 13)),
        (CdiDevice("MIG-x", 0, 7, 0), (66, 67)),
        (CdiDevice("MIG-x", 31, 14, 7), (4314, 4322)),
    ],
)
def test_minors_by_the_driver_s_rule(tmp_path: Path, device: CdiDevice, minors: tuple[int, int]) -> None:
    assert capability_minors(device, tmp_path / "none") == minors


def test_minors_as_the_kernel_says(tmp_path: Path) -> None:
    instance = tmp_path / "gpu0" / "mig" / "gi1"
    (instance / "ci0").mkdir(parents=True)
    (instance / "access").write_text("DeviceFileMinor: 212\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
    (instance / "ci0" / "access").write_text("DeviceFileMinor: 213\n")
    assert capability_minors(DEVICE, tmp_path) == (212, 213)


def test_entry_names_the_device_and_its_nodes(folder: Path, tmp_path: Path) -> None:
    entries(folder, tmp_path).write(DEVICE)
    content = written(folder)
    assert content["kind"] == "nvidia.com/gpu"
    [device] = content["devices"]
    assert device["name"] == DEVICE.uuid
    assert [n["path"] for n in device["containerEdits"]["deviceNodes"]] == [
        "/dev/nvidia0",
        "/dev/nvidia-caps/nvidia-cap12",
        "/dev/nvidia-caps/nvidia-cap13",
    ]
    assert {n["path"] for n in content["containerEdits"]["deviceNodes"]} >= {"/dev/nvidiactl"}


def test_driver_libraries_come_from_the_toolkit_s_file(folder: Path, tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "nvidia.yaml").write_text(yaml.safe_dump(BASE))
    entries(folder, tmp_path, tmp_path / "absent", etc).write(DEVICE)
    content = written(folder)
    assert content["cdiVersion"] == "0.6.0"
    assert content["containerEdits"] == BASE["containerEdits"]
    assert [d["name"] for d in content["devices"]] == [DEVICE.uuid]


def test_unreadable_toolkit_file_is_as_none(folder: Path, tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "nvidia.yaml").write_text("{not yaml")
    entries(folder, tmp_path, etc).write(DEVICE)
    assert written(folder)["devices"]


def test_device_named_elsewhere_gets_no_second_entry(folder: Path, tmp_path: Path) -> None:
    cdi = entries(folder, tmp_path)
    cdi.write(DEVICE)
    other = BASE | {"devices": [{"name": DEVICE.uuid, "containerEdits": {}}]}
    (folder / "nvidia.yaml").write_text(yaml.safe_dump(other))
    cdi.write(DEVICE)
    assert [p.name for p in folder.iterdir()] == ["nvidia.yaml"]


def test_write_and_remove_are_idempotent_and_leave_no_scratch(folder: Path, tmp_path: Path) -> None:
    cdi = entries(folder, tmp_path)
    cdi.write(DEVICE)
    cdi.write(DEVICE)
    assert len(list(folder.iterdir())) == 1
    cdi.remove(DEVICE.uuid)
    cdi.remove(DEVICE.uuid)
    assert list(folder.iterdir()) == []


def test_prune_removes_only_our_stale_entries(folder: Path, tmp_path: Path) -> None:
    cdi = entries(folder, tmp_path)
    cdi.write(DEVICE)
    cdi.write(CdiDevice("MIG-gone", 0, 2, 0))
    (folder / "nvidia.yaml").write_text(yaml.safe_dump(BASE))
    cdi.prune([DEVICE.uuid])
    assert sorted(p.name for p in folder.iterdir()) == [f"allotment-{DEVICE.uuid}.json", "nvidia.yaml"]
    cdi.prune([])
    assert [p.name for p in folder.iterdir()] == ["nvidia.yaml"]


def test_name_of_the_older_form_stays_inside_the_folder(folder: Path, tmp_path: Path) -> None:
    entries(folder, tmp_path).write(CdiDevice("MIG-GPU-1234/../../7/0", 0, 7, 0))
    assert [p.parent for p in tmp_path.rglob("*.json")] == [folder]
