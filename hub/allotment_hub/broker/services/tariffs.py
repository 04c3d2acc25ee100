"""What a size costs a person: the catalogue's rate with its schedules, times the factors that hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from typing import Any, Final

from allotment_spawner.core.inventory import Gpu
from allotment_spawner.core.profiles import choose

from allotment_hub.accounting.tariff import PLACES, Tariff, Window
from allotment_hub.broker.services.observe import Observations
from allotment_hub.broker.store.records import Device, Lease
from allotment_hub.catalog import Catalog
from allotment_hub.prices import DAYS, Schedule
from allotment_hub.site import Site

__all__ = ["INTERACTIVE", "Tariffs"]

INTERACTIVE: Final = "interactive"
_STEP = Decimal(1).scaleb(-PLACES)


class Tariffs:
    """Of the catalogue as it is now; a lease keeps what it got at its grant."""

    def __init__(self, *, site: Site, catalog: Catalog, observations: Observations) -> None:
        self._site = site
        self._catalog = catalog
        self._prices = catalog.prices
        self._seen = observations

    def of(
        self,
        flavor_id: str,
        *,
        factor: Decimal = Decimal(1),
        gpus: Decimal = Decimal(0),
        queue_class: str = INTERACTIVE,
    ) -> Tariff:
        """`factor` is that of the person's groups. KeyError for a flavor that is not in the catalogue."""
        rate = self._catalog.flavors[flavor_id].rate
        factors = (factor, self._class_factor(queue_class))
        return Tariff(
            currency=self._site.currency,
            zone=self._prices.zone,
            per_hour=_times(rate, *factors),
            windows=tuple(
                _window(schedule, rate, factors)
                for schedule in self._prices.schedules
                if schedule.flavors == "all" or flavor_id in schedule.flavors
            ),
            gpus=gpus,
        )

    def quoted(self, flavor_id: str, wants: Mapping[str, Any]) -> Tariff:
        """Before the grant; `wants` as the request's parts decided them."""
        return self.of(flavor_id, factor=_factor(wants), gpus=self.gpus_for(flavor_id) or Decimal(0))

    def factor_of(self, groups: Collection[str]) -> Decimal | None:
        """The smallest of the person's groups; None where no group of theirs has one."""
        return min(
            (self._prices.groups[name] for name in groups if name in self._prices.groups), default=None
        )

    def at_grant(self, lease: Lease, devices: Sequence[Device]) -> Tariff:
        """What the lease keeps: by what was decided at its request and the devices that it got."""
        return self.of(
            lease.flavor,
            factor=_factor(lease.wants or {}),
            gpus=self.gpus_of(devices),
            queue_class=lease.queue_class,
        )

    def currency_of(self, lease: Lease) -> str:
        """Before the grant the site's."""
        tariff = self.of_lease(lease)
        return self._site.currency if tariff is None else tariff.currency

    def gpus_of(self, devices: Sequence[Device]) -> Decimal:
        """Their share of whole GPUs, to 6 places: of a slice its part of the GPU's memory slices."""
        return _to_places(sum((self._share(device) for device in devices), Decimal(0)))

    def gpus_for(self, flavor_id: str) -> Decimal | None:
        """The share of whole GPUs that this size would take, by the first GPU that has it; None: unknown."""
        want = self._catalog.flavors[flavor_id].gpu
        if want is None:
            return Decimal(0)
        if want.kind == "whole":
            return Decimal(want.count)
        for gpu in self._gpus:
            profile = choose(gpu.profiles, want.memory_gb, want.compute_slices)
            if gpu.mig and gpu.axis and profile is not None:
                return _to_places(Decimal(profile.size) / gpu.axis)
        return None

    def of_lease(self, lease: Lease) -> Tariff | None:
        """As the lease keeps it; of a time before there were schedules one rate. None before the grant."""
        if lease.granted_at is None and lease.active_at is None:
            return None
        if not lease.rates:
            return Tariff(self._site.currency, self._prices.zone, lease.price_per_hour)
        tariff = Tariff.from_json(lease.rates)
        # of a time before there were books: its devices are known all the same
        return replace(tariff, gpus=self.gpus_of(lease.devices)) if isinstance(lease.rates, list) else tariff

    def _share(self, device: Device) -> Decimal:
        if device.size is None:
            return Decimal(1)
        axis = next((gpu.axis for gpu in self._gpus if gpu.uuid == device.gpu_uuid), 0)
        return Decimal(device.size) / axis if axis else Decimal(0)

    @property
    def _gpus(self) -> Sequence[Gpu]:
        """As last seen; read also from the store's thread, which it never waits for."""
        inventory = self._seen.inventory
        return () if inventory is None else inventory.gpus

    def _class_factor(self, queue_class: str) -> Decimal:
        return next(
            (found for name, found in self._prices.classes.items() if name == queue_class), Decimal(1)
        )


def _factor(wants: Mapping[str, Any]) -> Decimal:
    return Decimal(wants.get("factor", 1))


def _window(schedule: Schedule, rate: Decimal, factors: Sequence[Decimal]) -> Window:
    own = schedule.price_per_hour
    price = _times(rate, schedule.factor or Decimal(0), *factors) if own is None else _times(own, *factors)
    return Window(
        days=frozenset(DAYS.index(day) for day in schedule.days),
        start=_minute(schedule.from_),
        end=_minute(schedule.to),
        per_hour=price,
    )


def _minute(clock: str) -> int:
    return int(clock[:2]) * 60 + int(clock[3:])


def _to_places(share: Decimal) -> Decimal:
    return share.quantize(_STEP, ROUND_HALF_EVEN)


def _times(*factors: Decimal) -> Decimal:
    """Their product, rounded once to 6 places, half to even."""
    with localcontext(prec=100):
        product = Decimal(1)
        for factor in factors:
            product *= factor
        return product.quantize(_STEP, ROUND_HALF_EVEN)
