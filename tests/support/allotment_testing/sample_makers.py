"""Leases and rounds of samples as a broker would hold them, for what stores and reads samples."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from allotment_hub.broker.metrics.rounds import Round, WorkloadRates
from allotment_hub.broker.store.records import Device, Lease
from allotment_spawner.core.lease import LeaseState
from allotment_spawner.core.samples import DeviceSample
from allotment_spawner.wire import DeviceView, LeaseView

__all__ = ["BEGAN", "a_device", "a_lease", "a_round", "a_view"]

BEGAN = datetime(2026, 11, 30, 12, tzinfo=UTC)
_NONE = ("engine_ref", "rates", "boot_id", "deadline_at", "confirmed_at", "ending_at", "stopped_at")
_NONE_EITHER = ("ended_at", "end_reason", "refusal", "note")


def a_device(number: int) -> Device:
    return Device(f"GPU-{number // 7}", "node", "1g.10gb", number % 7, 1, f"MIG-{number}")


def a_lease(number: int = 1, *, devices: Sequence[Device] = (), **changes: Any) -> Lease:
    """An active one, of 4 cores."""
    values: dict[str, Any] = {
        "seq": number,
        "id": f"lease-{number}",
        "kind": "session",
        "queue_class": "interactive",
        "user": "ada",
        "server": "",
        "environment": "minimal",
        "flavor": "gpu-10gb",
        "state": LeaseState.ACTIVE,
        "attempt": "a",
        "price_per_hour": Decimal(1),
        "launch": {"cpu": 4},
        "created_at": BEGAN,
        "granted_at": BEGAN,
        "active_at": BEGAN,
        "devices": tuple(devices),
    }
    return Lease(**{**dict.fromkeys((*_NONE, *_NONE_EITHER)), **values, **changes})


def a_view(lease: Lease, *, stopped_at: datetime | None = None) -> LeaseView:
    """The same lease as the API shows it."""
    devices = [
        DeviceView(
            uuid=d.uuid or "", node=d.node, gpu_uuid=d.gpu_uuid, profile=d.profile, placement=d.placement
        )
        for d in lease.devices
    ]
    return LeaseView.model_validate(
        {
            **{
                name: getattr(lease, name)
                for name in ("id", "kind", "user", "server", "environment", "flavor")
            },
            "state": "active" if stopped_at is None else "ended",
            "devices": devices,
            "place": None,
            "expected_start": None,
            "class": lease.queue_class,
            "granted_at": lease.granted_at,
            "active_at": lease.active_at,
            "stopped_at": stopped_at,
            "ended_at": stopped_at,
            "end_reason": None if stopped_at is None else "stopped",
            "price_per_hour": "1",
        }
    )


def a_round(after_s: float, *, cores: float | None = 1.5, sm: float | None = 40.0, gpu: bool = True) -> Round:
    """Of lease-1 on MIG-1 of GPU-0, this long after BEGAN; `gpu` False: the agent did not answer."""
    card = DeviceSample("GPU-0", "GPU-0", power_w=100.0, energy_j=1000 + 100 * after_s)
    piece = DeviceSample("GPU-0", "MIG-1", sm_percent=sm, memory_used_bytes=3 * 2**30)
    return Round(
        at=BEGAN + timedelta(seconds=after_s),
        devices={"GPU-0": card, "MIG-1": piece} if gpu else {},
        gpus={"GPU-0": card} if gpu else {},
        workloads={} if cores is None else {"lease-1": WorkloadRates(cpu_cores_used=cores, cpu_cores=4)},
        missing={} if gpu else {"agent": "It does not answer."},
    )
