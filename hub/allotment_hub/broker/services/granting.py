"""Reserve, cut, grant: the three steps between a place in the queue and a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from allotment_spawner.core.errors import Refusal
from allotment_spawner.core.lease import LeaseState
from allotment_spawner.core.snapshot import Placement

from allotment_hub.broker.services.environments import Environments
from allotment_hub.broker.services.extras import Extras
from allotment_hub.broker.services.launching import launch_of
from allotment_hub.broker.services.observe import Observations
from allotment_hub.broker.services.situation import Situation
from allotment_hub.broker.services.tariffs import Tariffs
from allotment_hub.broker.store.records import Cut, Device, Lease
from allotment_hub.broker.store.store import Store
from allotment_hub.broker.store.transaction import Transaction
from allotment_hub.catalog import Catalog
from allotment_hub.runtime import Runtime
from allotment_hub.site import Site

__all__ = ["Granting"]


class Granting:
    """The transactions of a grant; each checks again that the lease still wants it."""

    def __init__(
        self,
        *,
        site: Site,
        catalog: Catalog,
        runtime: Runtime,
        environments: Environments,
        store: Store,
        situation: Situation,
        observations: Observations,
        extras: Extras,
        tariffs: Tariffs,
        clock: Callable[[], datetime],
    ) -> None:
        self._site = site
        self._catalog = catalog
        self._runtime = runtime
        self._environments = environments
        self._store = store
        self._situation = situation
        self._seen = observations
        self._extras = extras
        self._tariffs = tariffs
        self._clock = clock

    def offered(self, lease: Lease) -> bool:
        """Whether the catalogue and this machine still have what the lease asked for."""
        return lease.flavor in self._catalog.flavors and self._environments.still_there(lease)

    def ready(self, lease: Lease) -> bool:
        """Whether all that the lease needs besides a device is on this machine."""
        return self._extras.ready(lease)

    def problem(self, lease: Lease) -> Refusal | None:
        """Why the lease can never start any more."""
        return self._extras.problem(lease)

    async def without_device(self, lease_id: str) -> bool:
        """Grant a CPU flavor. False when the lease does not wait any more."""

        def work(tx: Transaction) -> bool:
            lease = tx.lease(lease_id)
            if lease is None or lease.state is not LeaseState.QUEUED or lease.devices:
                return False
            self._grant(tx, lease, ())
            return True

        return await self._store.write("grant", work)

    async def reserve(self, lease_id: str, placement: Placement) -> bool:
        """Take the slots before any hardware is touched. Whole cards need no cut: granted at once.

        Raises `SlotTaken` when the database refuses.
        """
        devices = [
            self._device(placed.gpu_uuid, placed.profile, placed.start, placed.size)
            for placed in placement.devices
        ]
        cuts = [self._cut_of(device) for device in devices if device.profile is not None]

        def work(tx: Transaction) -> bool:
            lease = tx.lease(lease_id)
            if lease is None or lease.state is not LeaseState.QUEUED or lease.devices:
                return False
            tx.reserve(lease_id, devices)
            tx.add_cuts(cuts)
            if not cuts:
                held = replace(lease, devices=tuple(devices))
                self._grant(tx, held, [device.gpu_uuid for device in devices])
            return True

        done = await self._store.write("reserve", work)
        if done:
            self._situation.note_cuts(*cuts)
        return done

    async def with_devices(self, lease_id: str, uuids: Sequence[str]) -> bool:
        """The slices exist: grant. False when the lease was ended while they were cut."""

        def work(tx: Transaction) -> bool:
            lease = tx.lease(lease_id)
            if lease is None or lease.state is not LeaseState.QUEUED or not lease.devices:
                return False
            self._grant(tx, lease, uuids)
            return True

        return await self._store.write("grant", work)

    async def take_back(self, lease_id: str) -> None:
        """Give a reservation up; the lease keeps its place in the queue."""

        def work(tx: Transaction) -> None:
            lease = tx.lease(lease_id)
            if lease is not None and lease.state is LeaseState.QUEUED:
                tx.free_slots(lease_id, forget_devices=True)

        await self._store.write("take_back", work)

    def _grant(self, tx: Transaction, lease: Lease, uuids: Sequence[str]) -> None:
        flavor = self._catalog.flavors[lease.flavor]
        inventory = self._seen.inventory
        now = max(self._clock(), lease.created_at)
        launch = self._extras.complete(
            lease,
            launch_of(
                runtime=self._runtime,
                flavor_id=lease.flavor,
                flavor=flavor,
                environment=lease.environment,
                lease_id=lease.id,
                devices=uuids,
                simulated=inventory is not None and inventory.simulated and bool(uuids),
            ),
        )
        tariff = self._tariffs.at_grant(lease, lease.devices)
        tx.name_devices(lease.id, uuids)
        tx.set_lease(
            lease.id,
            state=LeaseState.GRANTED,
            granted_at=now,
            deadline_at=now + timedelta(seconds=self._site.policies.grant_deadline_s),
            price_per_hour=tariff.rate(now),
            rates=tariff.as_json(),
            launch=launch.model_dump(mode="json"),
            boot_id=None if inventory is None else inventory.boot_id,
            note=None,
        )

    def _device(self, gpu_uuid: str, profile: str | None, start: int | None, size: int | None) -> Device:
        facts = self._situation.machine().facts(gpu_uuid)
        assert facts is not None
        assert self._seen.inventory is not None
        media = any(known.media for known in facts.gpu.profiles if known.name == profile)
        return Device(
            gpu_uuid=gpu_uuid,
            node=self._seen.inventory.node,
            profile=profile,
            start=start,
            size=size,
            uuid=gpu_uuid if profile is None else None,
            media=media,
        )

    def _cut_of(self, device: Device) -> Cut:
        assert device.profile is not None
        assert device.start is not None
        return Cut(
            gpu_uuid=device.gpu_uuid,
            start=device.start,
            profile=device.profile,
            boot_id=self._situation.boot_id or "",
            made_at=self._clock(),
        )
