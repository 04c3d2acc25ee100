"""Container Device Interface entries: one file a slice, written and removed with it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

__all__ = ["CdiDevice", "CdiEntries", "capability_minors", "names_by_uuid"]

KIND = "nvidia.com/gpu"
_PREFIX = "allotment-"
_DEFAULT_VERSION = "0.5.0"


@dataclass(frozen=True, slots=True)
class CdiDevice:
    """A slice as the kernel knows it: the GPU's minor number and the two instance ids."""

    uuid: str
    gpu_minor: int
    instance_id: int
    compute_id: int


def capability_minors(device: CdiDevice, capabilities: Path) -> tuple[int, int]:
    """Minor numbers of the GPU instance's and the compute instance's access nodes.

    Read below /proc/driver/nvidia/capabilities; where that is missing, the driver's rule
    (3 + 135 * gpu + 9 * gi, and that + 1 + ci).
    """
    instance = 3 + 135 * device.gpu_minor + 9 * device.instance_id
    ruled = instance, instance + 1 + device.compute_id
    folder = capabilities / f"gpu{device.gpu_minor}" / "mig" / f"gi{device.instance_id}"
    paths = folder / "access", folder / f"ci{device.compute_id}" / "access"
    read = [_minor(path) for path in paths]
    return (read[0] if read[0] is not None else ruled[0], read[1] if read[1] is not None else ruled[1])


def _minor(path: Path) -> int | None:
    try:
        found = re.search(r"DeviceFileMinor:\s*(\d+)", path.read_text(encoding="ascii"))
    except OSError:
        return None
    return int(found.group(1)) if found else None


class CdiEntries:
    """Writes into `folder`; what all GPUs share (driver libraries, hooks) comes from nvidia-ctk's file.

    An entry is left out where another file in the same folder names the device already: two files
    with one device make it unusable for the container engine.
    """

    def __init__(
        self,
        *,
        folder: Path,
        base_folders: Sequence[Path] = (Path("/var/run/cdi"), Path("/etc/cdi")),
        capabilities: Path = Path("/proc/driver/nvidia/capabilities"),
    ) -> None:
        self._folder = folder
        self._bases = tuple(base_folders)
        self._capabilities = capabilities

    def write(self, device: CdiDevice) -> None:
        """Atomic and idempotent. OSError when the folder cannot be written."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._named_elsewhere(device.uuid):
            self.remove(device.uuid)
            return
        target = self._path(device.uuid)
        text = json.dumps(self._content(device), indent=1, sort_keys=True)
        # The engine watches *.json and *.yaml only, so it never sees the half-written file.
        scratch = target.with_suffix(".new")
        with scratch.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        scratch.chmod(0o644)
        scratch.replace(target)

    def remove(self, uuid: str) -> None:
        """Gone already is no error."""
        self._path(uuid).unlink(missing_ok=True)

    def prune(self, keep: Iterable[str]) -> None:
        """Remove our entries of slices that do not exist any more (after a crash or a reboot)."""
        kept = {self._path(uuid) for uuid in keep}
        for path in self._folder.glob(f"{_PREFIX}*.json"):
            if path not in kept:
                path.unlink(missing_ok=True)

    def _path(self, uuid: str) -> Path:
        return self._folder / f"{_PREFIX}{re.sub(r'[^A-Za-z0-9-]', '_', uuid)}.json"

    def _content(self, device: CdiDevice) -> dict[str, Any]:
        base = _base_in(self._bases)
        instance, compute = capability_minors(device, self._capabilities)
        nodes = [
            f"/dev/nvidia{device.gpu_minor}",
            *(f"/dev/nvidia-caps/nvidia-cap{n}" for n in (instance, compute)),
        ]
        shared = base.get("containerEdits") or {
            "deviceNodes": [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm"}]
        }
        return {
            "cdiVersion": base.get("cdiVersion", _DEFAULT_VERSION),
            "kind": KIND,
            "devices": [
                {"name": device.uuid, "containerEdits": {"deviceNodes": [{"path": node} for node in nodes]}}
            ],
            "containerEdits": shared,
        }

    def _named_elsewhere(self, uuid: str) -> bool:
        for path in (*self._folder.glob("*.yaml"), *self._folder.glob("*.yml"), *self._folder.glob("*.json")):
            if path == self._path(uuid):
                continue
            content = _read(path)
            devices = content.get("devices") if content.get("kind") == KIND else None
            if any(isinstance(d, dict) and d.get("name") == uuid for d in devices or ()):
                return True
        return False


def names_by_uuid(folders: Sequence[Path]) -> bool:
    """Whether nvidia-ctk's file stands in one of these folders, so that entries of ours can be completed
    by it, and gives cards (if it names any) by UUID, as leases do."""
    devices = _base_in(folders).get("devices")
    if not isinstance(devices, list):
        return False
    names = {str(one.get("name")) for one in devices if isinstance(one, dict)} - {"all"}
    return not names or any(name.startswith(("GPU-", "MIG-")) for name in names)


def _base_in(folders: Sequence[Path]) -> dict[str, Any]:
    """The file that nvidia-ctk writes; empty when there is none."""
    for folder in folders:
        for name in ("nvidia.yaml", "nvidia.yml", "nvidia.json"):
            content = _read(folder / name)
            if content.get("kind") == KIND:
                return content
    return {}


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return content if isinstance(content, dict) else {}
