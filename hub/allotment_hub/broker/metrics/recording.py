"""A round as rows of whole numbers: each session, each of its devices, each card."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from allotment_spawner.core.samples import DeviceSample

from allotment_hub.broker.metrics.fields import DEVICE, REASONS, WORKLOAD, Field, Kind
from allotment_hub.broker.metrics.rounds import Round, WorkloadRates
from allotment_hub.broker.store.records import Lease

__all__ = ["Recorded", "Recorder", "device_name"]

Recorded = tuple[Kind, str, list[int | None]]
"""Whose row, and its codes in the order of the kind's layout."""
_COUNTERS: Final = frozenset({"energy_j", "ecc_corrected", "ecc_uncorrected"})
_GROWING: Final = frozenset(at for at, field in enumerate(DEVICE) if field.name in _COUNTERS)
_BIT: Final = {name: 1 << bit for bit, name in enumerate(REASONS)}


def device_name(lease_id: str, ordinal: int) -> str:
    """What the rows of a session's device are kept under."""
    return f"{lease_id}/{ordinal}"


class Recorder:
    """Remembers the last counters of each device, because growth is what is kept."""

    def __init__(self) -> None:
        self._counters: dict[str, DeviceSample] = {}
        self._held: dict[str, str | None] = {}
        """Device UUID -> the lease that had it then."""

    def rows(self, taken: Round, leases: Sequence[Lease]) -> list[Recorded]:
        """All that is known of this round; what is wholly unknown has no row."""
        growth = {uuid: self._codes(uuid, sample) for uuid, sample in taken.devices.items()}
        held = self._held
        if taken.devices:
            unread = {uuid: old for uuid, old in self._counters.items() if old.gpu_uuid in taken.missing}
            self._counters = {**unread, **taken.devices}
            self._held = {uuid: held.get(uuid) for uuid in unread}
            self._held |= {uuid: taken.holders.get(uuid) for uuid in taken.devices}
        rows: list[Recorded] = [("gpu", uuid, growth[uuid]) for uuid in taken.gpus if uuid in growth]
        for lease in leases:
            rows += _of_lease(lease, taken, growth, held)
        return rows

    def _codes(self, uuid: str, sample: DeviceSample) -> list[int | None]:
        before = self._counters.get(uuid)
        return [_code(field, _figure(field.name, sample, before)) for field in DEVICE]


def _of_lease(
    lease: Lease, taken: Round, growth: Mapping[str, list[int | None]], held: Mapping[str, str | None]
) -> Iterator[Recorded]:
    rates = taken.workloads.get(lease.id)
    if rates is not None:
        yield "workload", lease.id, _workload(rates)
    for ordinal, device in enumerate(lease.devices):
        uuid = device.uuid or ""
        codes = growth.get(uuid)
        if codes is not None:
            if held.get(uuid) != lease.id:  # what it grew by since then is not, or not only, of this session
                codes = [None if at in _GROWING else code for at, code in enumerate(codes)]
            yield "device", device_name(lease.id, ordinal), codes


def _workload(rates: WorkloadRates) -> list[int | None]:
    return [_code(field, getattr(rates, field.name)) for field in WORKLOAD]


def _code(field: Field, value: float | None) -> int | None:
    return None if value is None else field.code(value)


def _figure(name: str, sample: DeviceSample, before: DeviceSample | None) -> float | None:
    if name == "clock_reasons":
        return None if sample.clock_reasons is None else _mask(sample.clock_reasons)
    if name == "xids":
        return None if sample.xids is None else len(sample.xids)
    now: float | None = getattr(sample, name)
    if name not in _COUNTERS:
        return now
    old: float | None = None if before is None else getattr(before, name)
    # a counter that went back began anew with the driver
    return None if now is None or old is None or now < old else now - old


def _mask(names: Iterable[str]) -> int:
    mask = 0
    for name in names:
        mask |= _BIT.get(name, 1)
    return mask
