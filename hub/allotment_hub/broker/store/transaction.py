"""What may be done inside one transaction; plain functions of rows, no decisions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from allotment_spawner.core.lease import LIVE, EndReason, LeaseState, may_follow
from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from allotment_hub.broker.store.ledger import Entry, add_entry
from allotment_hub.broker.store.records import Attempt, Cut, Device, Lease, slots_of
from allotment_hub.broker.store.schema import attempts, cuts, devices, leases, outages, slots

__all__ = ["IllegalStep", "SlotTaken", "Transaction"]

_LIVE = tuple(state.value for state in LIVE)
_UNENDED = (*_LIVE, LeaseState.ENDING.value)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Enum members as their words (psycopg would write an enum's name), sets as sorted lists."""

    def plain(value: Any) -> Any:
        if isinstance(value, StrEnum):
            return value.value
        return sorted(value) if isinstance(value, frozenset) else value

    return {name: plain(value) for name, value in values.items()}


class SlotTaken(Exception):
    """Another lease holds one of these slots: the database refused the reservation."""


class IllegalStep(Exception):
    """A mistake of ours: the transaction is rolled back."""


class Transaction:
    """The unit of work. `changed` are the leases written, `posted` the entries, for what lives in memory."""

    def __init__(self, *, connection: Connection) -> None:
        self._connection = connection
        self._read: dict[str, Lease] = {}
        self.changed: set[str] = set()
        self.posted: list[Entry] = []

    @property
    def connection(self) -> Connection:
        """For the modules of this package that know one table each (images, datasets, notices, homes)."""
        return self._connection

    # leases
    def lease(self, lease_id: str) -> Lease | None:
        """Read once a transaction; later writes of this transaction are in what is returned."""
        if lease_id not in self._read:
            for found in self._leases(leases.c.id == lease_id):
                self._read[lease_id] = found
        return self._read.get(lease_id)

    def _known(self, lease_id: str, **changes: Any) -> Lease:
        found = self.lease(lease_id)
        assert found is not None, "a lease that was just written"
        self._read[lease_id] = replace(found, **changes)
        self.changed.add(lease_id)
        return self._read[lease_id]

    def unended(self) -> list[Lease]:
        """Every lease that is not ended, in order of arrival."""
        return self._leases(leases.c.state.in_(_UNENDED))

    def live_of(self, user: str, server: str) -> Lease | None:
        """The one queued, granted or active lease of this server."""
        rows = self._leases(leases.c.user == user, leases.c.server == server, leases.c.state.in_(_LIVE))
        return rows[0] if rows else None

    def live_count(self, user: str) -> int:
        query = select(leases.c.id).where(leases.c.user == user, leases.c.state.in_(_LIVE))
        return len(self._connection.execute(query).all())

    def find(self, *, user: str | None, server: str | None, live: bool, limit: int) -> list[Lease]:
        """Newest first."""
        conditions = []
        if user is not None:
            conditions.append(leases.c.user == user)
        if server is not None:
            conditions.append(leases.c.server == server)
        if live:
            conditions.append(leases.c.state.in_(_LIVE))
        return self._leases(*conditions, newest=True, limit=limit)

    def live_leases(self, *, user: str | None = None, charged_to: str | None = None) -> list[Lease]:
        """Those of this person, or that are charged to this group."""
        mine = (
            leases.c.user == user
            if charged_to is None
            else leases.c.wants["charged_to"].as_string() == charged_to
        )
        return self._leases(mine, leases.c.state.in_(_LIVE))

    def add_lease(self, **values: Any) -> Lease:
        self._connection.execute(insert(leases).values(**_plain(values)))
        self.changed.add(values["id"])
        found = self.lease(values["id"])
        assert found is not None
        return found

    def set_lease(self, lease_id: str, **values: Any) -> Lease:
        """Write these columns. The lease must exist; `IllegalStep` for a state that may not follow its own,
        so that no mistake of ours revives a lease that is over."""
        before = self.lease(lease_id)
        if before is not None and "state" in values and not may_follow(before.state, values["state"]):
            raise IllegalStep(f"lease {lease_id} from {before.state.value} to {values['state'].value}")
        known = self._known(lease_id, **values)
        self._connection.execute(update(leases).where(leases.c.id == lease_id).values(**_plain(values)))
        return known

    def _leases(self, *conditions: Any, newest: bool = False, limit: int | None = None) -> list[Lease]:
        order = leases.c.seq.desc() if newest else leases.c.seq
        rows = (
            self._connection.execute(select(leases).where(*conditions).order_by(order).limit(limit))
            .mappings()
            .all()
        )
        held = self._devices([row["id"] for row in rows])
        return [Lease.from_row(dict(row), tuple(held.get(row["id"], ()))) for row in rows]

    def _devices(self, ids: Sequence[str]) -> dict[str, list[Device]]:
        held: dict[str, list[Device]] = {}
        for first in range(0, len(ids), 500):
            chunk = ids[first : first + 500]
            query = (
                select(devices).where(devices.c.lease.in_(chunk)).order_by(devices.c.lease, devices.c.ordinal)
            )
            for row in self._connection.execute(query).mappings():
                held.setdefault(row["lease"], []).append(
                    Device(
                        gpu_uuid=row["gpu_uuid"],
                        node=row["node"],
                        profile=row["profile"],
                        start=row["start"],
                        size=row["size"],
                        uuid=row["uuid"],
                        media=bool(row["media"]),
                    )
                )
        return held

    # slots
    def reserve(self, lease_id: str, wanted: Sequence[Device]) -> Lease:
        """Take the slots of these devices, or raise `SlotTaken` and leave the transaction to roll back."""
        try:
            for ordinal, device in enumerate(wanted):
                for slot in slots_of(device):
                    self._connection.execute(
                        insert(slots).values(gpu_uuid=device.gpu_uuid, slot=slot, lease=lease_id)
                    )
                self._connection.execute(
                    insert(devices).values(
                        lease=lease_id,
                        ordinal=ordinal,
                        gpu_uuid=device.gpu_uuid,
                        node=device.node,
                        profile=device.profile,
                        start=device.start,
                        size=device.size,
                        uuid=device.uuid,
                        media=int(device.media),
                    )
                )
        except IntegrityError as error:
            raise SlotTaken(lease_id) from error
        return self._known(lease_id, devices=tuple(wanted))

    def name_devices(self, lease_id: str, uuids: Sequence[str]) -> None:
        """Write the UUIDs of the devices that were cut, in their order."""
        for ordinal, uuid in enumerate(uuids):
            self._connection.execute(
                update(devices)
                .where(devices.c.lease == lease_id, devices.c.ordinal == ordinal)
                .values(uuid=uuid)
            )
        lease = self._known(lease_id)
        named = tuple(replace(one, uuid=uuid) for one, uuid in zip(lease.devices, uuids, strict=True))
        self._known(lease_id, devices=named)

    def free_slots(self, lease_id: str, *, forget_devices: bool = False) -> None:
        """Give the slots back; `forget_devices` for a reservation that never became a grant."""
        self._connection.execute(delete(slots).where(slots.c.lease == lease_id))
        self._known(lease_id)
        if forget_devices:
            self._connection.execute(delete(devices).where(devices.c.lease == lease_id))
            self._known(lease_id, devices=())

    def slot_rows(self) -> list[tuple[str, str, str]]:
        """Every taken slot: (gpu_uuid, slot, lease)."""
        return [tuple(row) for row in self._connection.execute(select(slots)).all()]

    # attempts
    def attempt(self, key: str) -> Attempt | None:
        row = self._connection.execute(select(attempts).where(attempts.c.key == key)).mappings().first()
        return None if row is None else Attempt(**row)

    def add_attempt(self, attempt: Attempt) -> None:
        self._connection.execute(
            insert(attempts).values(
                key=attempt.key, lease=attempt.lease, body_hash=attempt.body_hash, made_at=attempt.made_at
            )
        )

    # slices that we made
    def cuts(self) -> list[Cut]:
        return [Cut(**row) for row in self._connection.execute(select(cuts)).mappings()]

    def add_cuts(self, made: Iterable[Cut]) -> None:
        """Remember slices before they are made; a repeated one is renewed."""
        for cut in made:
            self.drop_cut(cut.gpu_uuid, cut.profile, cut.start)
            self._connection.execute(
                insert(cuts).values(
                    gpu_uuid=cut.gpu_uuid,
                    start=cut.start,
                    profile=cut.profile,
                    boot_id=cut.boot_id,
                    made_at=cut.made_at,
                )
            )

    def drop_cut(self, gpu_uuid: str, profile: str, start: int) -> None:
        self._connection.execute(
            delete(cuts).where(cuts.c.gpu_uuid == gpu_uuid, cuts.c.profile == profile, cuts.c.start == start)
        )

    # money
    def post(self, entry: Entry) -> Entry:
        """Write an entry of the ledger; `IntegrityError` where its key is there."""
        added = add_entry(self._connection, entry)
        self.posted.append(added)
        return added

    # outages
    def open_outage(self, what: str) -> datetime | None:
        """From when on it has not answered; None when it does."""
        query = select(outages.c.began_at).where(outages.c.what == what, outages.c.ended_at.is_(None))
        found: datetime | None = self._connection.execute(query).scalar()
        return found

    def begin_outage(self, what: str, at: datetime) -> None:
        if self.open_outage(what) is not None:
            return
        query = select(outages.c.began_at).where(outages.c.what == what)
        taken = set(self._connection.execute(query).scalars())
        while at in taken:  # the clock was set back to the microsecond of an earlier one
            at += timedelta(microseconds=1)
        self._connection.execute(insert(outages).values(what=what, began_at=at))

    def end_outage(self, what: str, at: datetime) -> None:
        """Not before it began, whatever the clock says."""
        began = self.open_outage(what)
        if began is not None:
            self._connection.execute(
                update(outages)
                .where(outages.c.what == what, outages.c.ended_at.is_(None))
                .values(ended_at=max(at, began))
            )

    def outages(
        self, *, since: datetime | None = None, of: Sequence[str] | None = None
    ) -> list[tuple[str, datetime, datetime | None]]:
        """(what, from, to) of those that go on, or ended at `since` or later; `of` these only."""
        query = select(outages.c.what, outages.c.began_at, outages.c.ended_at)
        if since is not None:
            query = query.where(outages.c.ended_at.is_(None) | (outages.c.ended_at >= since))
        if of is not None:
            query = query.where(outages.c.what.in_(of))
        return [tuple(row) for row in self._connection.execute(query.order_by(outages.c.began_at)).all()]

    # history
    def durations(self, since: datetime, limit: int) -> list[tuple[str, datetime, datetime]]:
        """(flavor, active_at, stopped_at) of sessions that ended after `since`, newest first."""
        query = (
            select(leases.c.flavor, leases.c.active_at, leases.c.stopped_at)
            .where(
                leases.c.state == LeaseState.ENDED.value,
                leases.c.active_at.is_not(None),
                leases.c.stopped_at.is_not(None),
                leases.c.stopped_at >= since,
                leases.c.end_reason != EndReason.NODE_RESTARTED.value,
            )
            .order_by(leases.c.seq.desc())
            .limit(limit)
        )
        return [tuple(row) for row in self._connection.execute(query).all()]

    def recent_profiles(self, limit: int) -> list[str]:
        """Profiles of the last leased slices, newest first."""
        query = (
            select(devices.c.profile)
            .join(leases, leases.c.id == devices.c.lease)
            .where(devices.c.profile.is_not(None), leases.c.granted_at.is_not(None))
            .order_by(leases.c.seq.desc())
            .limit(limit)
        )
        return [row[0] for row in self._connection.execute(query).all()]
