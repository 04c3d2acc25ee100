"""Sessions, the last samples and what they cost, put together from memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from allotment_spawner.core.inventory import NodeInventory
from allotment_spawner.core.lease import LeaseState
from allotment_spawner.core.samples import DeviceSample
from allotment_spawner.money_wire import QuoteBudget

from allotment_hub.broker.metrics.frames import DeviceReading, LeaseReading, WorkloadReading
from allotment_hub.broker.metrics.rounds import Round, WorkloadRates
from allotment_hub.broker.services.book import Book
from allotment_hub.broker.store.records import Device, Lease
from allotment_hub.catalog import Catalog

__all__ = ["MoneyOf", "Readings", "since_of"]

_SAMPLED: Final = tuple(
    field.name for field in fields(DeviceSample) if field.name not in ("gpu_uuid", "device_uuid")
)
_WORKED: Final = tuple(field.name for field in fields(WorkloadRates))


@dataclass(frozen=True, slots=True)
class MoneyOf:
    """What the books say of a lease at a time, from memory; None is unknown, or that there is none."""

    rate: Callable[[Lease, datetime], Decimal]
    currency: Callable[[Lease], str]
    cost: Callable[[Lease, datetime], Decimal | None]
    budget: Callable[[Lease, datetime], QuoteBudget | None]
    """The tightest hard one that it counts against, else the tightest."""
    ends_at: Callable[[Lease], datetime | None]
    """When it is stopped, as was announced or as a limit says."""


class Readings:
    """What is known of a session right now."""

    def __init__(
        self,
        *,
        book: Book,
        catalog: Catalog,
        inventory: Callable[[], NodeInventory | None],
        simulated: bool,
        money: MoneyOf,
    ) -> None:
        """`simulated`: until the agent says itself whether its GPUs are."""
        self._book = book
        self._catalog = catalog
        self._inventory = inventory
        self._simulated = simulated
        self._money = money
        self._models_of: NodeInventory | None = None
        self._known_models: dict[str, str] = {}

    def leases(self) -> list[Lease]:
        """Every session that is not over, oldest first."""
        return sorted(self._book.all(), key=lambda lease: lease.seq)

    def whole(self, lease: Lease, latest: Round, now: datetime) -> LeaseReading:
        return self.without_budget(lease, latest, now).model_copy(
            update={"budget": self._money.budget(lease, now)}
        )

    def without_budget(self, lease: Lease, latest: Round, now: datetime) -> LeaseReading:
        """For who needs none of it: to find the tightest takes as long as all the rest."""
        models = self._models()
        inventory = self._inventory()
        simulated = self._simulated if inventory is None else inventory.simulated
        flavor = self._catalog.flavors.get(lease.flavor)
        wants = lease.wants or {}
        return LeaseReading(
            lease=lease.id,
            user=lease.user,
            server=lease.server,
            flavor=lease.flavor,
            flavor_title=lease.flavor if flavor is None else flavor.title,
            environment=lease.environment,
            state=lease.state,
            since=since_of(lease),
            simulated=simulated,
            price_per_hour=self._money.rate(lease, now),
            currency=self._money.currency(lease),
            cost=self._money.cost(lease, now),
            charged_to=wants.get("charged_to"),
            budget=None,
            ends_at=self._money.ends_at(lease),
            devices=tuple(
                _device(device, lease.id, latest, models.get(device.gpu_uuid))
                for device in lease.devices
                if device.uuid is not None and lease.granted_at is not None
            ),
            workload=_workload(latest.workloads.get(lease.id)),
        )

    def _models(self) -> Mapping[str, str]:
        """GPU UUID -> model, of the inventory as it is."""
        inventory = self._inventory()
        if inventory is not self._models_of:
            self._models_of = inventory
            self._known_models = {} if inventory is None else {gpu.uuid: gpu.model for gpu in inventory.gpus}
        return self._known_models


def since_of(lease: Lease) -> datetime:
    """When it came into the state that it is in."""
    by_state = {
        LeaseState.GRANTED: lease.granted_at,
        LeaseState.ACTIVE: lease.active_at,
        LeaseState.ENDING: lease.ending_at,
        LeaseState.ENDED: lease.ended_at,
    }
    return by_state.get(lease.state) or lease.created_at


def _device(device: Device, lease_id: str, latest: Round, model: str | None) -> DeviceReading:
    uuid = device.uuid or ""
    sample = latest.devices.get(uuid) if latest.holders.get(uuid) == lease_id else None
    found: dict[str, Any] = {} if sample is None else {name: getattr(sample, name) for name in _SAMPLED}
    return DeviceReading(uuid=uuid, gpu_uuid=device.gpu_uuid, profile=device.profile, model=model, **found)


def _workload(rates: WorkloadRates | None) -> WorkloadReading:
    found: dict[str, Any] = {} if rates is None else {name: getattr(rates, name) for name in _WORKED}
    return WorkloadReading(**found)
