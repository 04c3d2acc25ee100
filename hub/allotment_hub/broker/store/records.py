"""Rows of the database as frozen records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from allotment_spawner.core.lease import EndReason, LeaseState

__all__ = ["Attempt", "Cut", "Device", "Lease", "WHOLE_SLOTS", "slots_of"]

WHOLE_SLOTS = (*(str(number) for number in range(12)), "me")
"""A whole GPU takes every slot that any MIG layout of it could have."""


@dataclass(frozen=True, slots=True)
class Device:
    """A leased device. `uuid` is None from the reservation until the slice is cut."""

    gpu_uuid: str
    node: str
    profile: str | None
    start: int | None
    size: int | None
    uuid: str | None
    media: bool = False

    @property
    def placement(self) -> tuple[int, int] | None:
        return None if self.start is None or self.size is None else (self.start, self.size)


@dataclass(frozen=True, slots=True)
class Lease:
    """One lease with its devices; times are aware UTC."""

    seq: int
    id: str
    kind: str
    queue_class: str
    user: str
    server: str
    environment: str
    flavor: str
    state: LeaseState
    attempt: str
    engine_ref: str | None
    price_per_hour: Decimal
    rates: dict[str, Any] | list[dict[str, str]] | None
    launch: dict[str, Any] | None
    boot_id: str | None
    created_at: datetime
    granted_at: datetime | None
    deadline_at: datetime | None
    confirmed_at: datetime | None
    active_at: datetime | None
    ending_at: datetime | None
    stopped_at: datetime | None
    ended_at: datetime | None
    end_reason: EndReason | None
    refusal: dict[str, Any] | None
    note: str | None
    pools: frozenset[str] | None = None
    """Names of the pools that the person could use when asking; None is any."""
    wants: dict[str, Any] | None = None
    """What was decided at the request besides the device: image, data, folders."""
    devices: tuple[Device, ...] = ()

    @property
    def reserved(self) -> bool:
        """Queued outside, but slots are held and the slice is being cut."""
        return self.state is LeaseState.QUEUED and bool(self.devices)

    @classmethod
    def from_row(cls, row: Mapping[str, Any], devices: tuple[Device, ...]) -> Lease:
        values = dict(row)
        values["state"] = LeaseState(values["state"])
        if values["end_reason"] is not None:
            values["end_reason"] = EndReason(values["end_reason"])
        if values["pools"] is not None:
            values["pools"] = frozenset(values["pools"])
        return cls(**values, devices=devices)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start() of a spawner; `body_hash` tells a reused key from a repeated call."""

    key: str
    lease: str
    body_hash: str
    made_at: datetime


@dataclass(frozen=True, slots=True)
class Cut:
    """A slice that we made (or were about to): what is not in here is foreign."""

    gpu_uuid: str
    start: int
    profile: str
    boot_id: str
    made_at: datetime


def slots_of(device: Device) -> tuple[str, ...]:
    """The slot rows that this device holds: memory slices, and "me" for the media engines."""
    if device.start is None or device.size is None:
        return WHOLE_SLOTS
    numbers = tuple(str(number) for number in range(device.start, device.start + device.size))
    return (*numbers, "me") if device.media else numbers
