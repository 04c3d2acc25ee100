"""The MIG tables of real GPU models, read from mig_profiles.yaml."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

__all__ = ["ComputeProfile", "GpuModel", "SimProfile", "known_models", "model"]

try:
    from yaml import CSafeLoader as _Loader
except ImportError:
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class ComputeProfile:
    """One compute-instance profile inside a GPU instance of one profile."""

    profile_id: int
    compute_slices: int
    max_instances: int
    multiprocessors: int


@dataclass(frozen=True, slots=True)
class SimProfile:
    """One GPU-instance profile; `enum` is what ProfileInfo takes, `profile_id` what create takes."""

    name: str
    enum: int
    profile_id: int
    compute_slices: int
    max_instances: int
    starts: tuple[int, ...]
    size: int
    memory_bytes: int
    multiprocessors: int
    compute: tuple[ComputeProfile, ...]

    @property
    def all_media(self) -> bool:
        """`+me.all` takes every media engine: only `-me` profiles may stand beside it."""
        return self.name.endswith("+me.all")

    @property
    def media(self) -> bool:
        return "+me" in self.name


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One board of the table. `memory_bytes` is the whole card's."""

    key: str
    capability: tuple[int, int]
    axis: int
    memory_bytes: int
    pci_device_id: int
    resetless_mig: bool
    mig_survives_reboot: bool
    profiles: tuple[SimProfile, ...]

    def profile(self, profile_id: int) -> SimProfile | None:
        """The profile with this id (not enum), or None."""
        return next((p for p in self.profiles if p.profile_id == profile_id), None)

    @property
    def bridged(self) -> bool:
        """Whether several of them are usually joined by NVLink (SXM boards are, PCIe cards are not)."""
        return not re.search(r"PCIe|RTX|A30|NVL", self.key)


@cache
def _table() -> dict[str, GpuModel]:
    text = files("allotment_spawner.gpu").joinpath("mig_profiles.yaml").read_text(encoding="utf-8")
    # The C parser reads the table in 0.07 s, the Python one in 0.34 s, at every start of a worker.
    rows: dict[str, Any] = yaml.load(text, Loader=_Loader)["gpus"]
    return {key: _model(key, row) for key, row in rows.items()}


def _model(key: str, row: dict[str, Any]) -> GpuModel:
    axis = int(row["memory_slices_total"])
    # Every key ends in the card's memory: A100-80GB.
    memory = int(key.rpartition("-")[2].removesuffix("GB")) * _GIB
    major, minor = str(row["cc"]).split(".")
    device_id = int(str(row["pci_device_ids"][0]).split()[0], 16) if row.get("pci_device_ids") else 0
    return GpuModel(
        key=key,
        capability=(int(major), int(minor)),
        axis=axis,
        memory_bytes=memory,
        pci_device_id=device_id,
        resetless_mig=bool(row["resetless_mig"]),
        mig_survives_reboot=bool(row["mig_mode_persists_reboot"]),
        profiles=tuple(_profile(p, axis, memory, row["sm_total"]) for p in row["profiles"]),
    )


def _profile(row: dict[str, Any], axis: int, memory: int, sm_total: int | None) -> SimProfile:
    size = int(row["placements"]["size"])
    # Where no transcript of the board is public, the memory slices' share of the card stands in.
    share = memory * size // axis
    measured = row.get("memory_gib_lgip")
    sms = row.get("sm") or (sm_total or 0) * size // axis
    compute = row.get("compute_instances") or [
        {
            "ci_profile_id": row["default_ci_profile_id"],
            "compute_slices": row["compute_slices"],
            "max_instances": 1,
            "sm": sms,
        }
    ]
    return SimProfile(
        name=row["name"],
        enum=int(row["nvml_profile_enum"]),
        profile_id=int(row["profile_id"]),
        compute_slices=int(row["compute_slices"]),
        max_instances=int(row["max_instances"]),
        starts=tuple(row["placements"]["starts"]),
        size=size,
        memory_bytes=int(float(measured) * _GIB) if measured else share,
        multiprocessors=int(sms),
        compute=tuple(
            ComputeProfile(
                c["ci_profile_id"], c["compute_slices"], c["max_instances"], int(c.get("sm") or sms)
            )
            for c in compute
        ),
    )


def known_models() -> tuple[str, ...]:
    """Every model name of the table, in its order."""
    return tuple(_table())


def model(key: str) -> GpuModel:
    """The table's row; KeyError for an unknown model."""
    return _table()[key]
