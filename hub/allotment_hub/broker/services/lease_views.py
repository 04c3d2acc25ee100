"""Leases as the wire shows them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Literal

from allotment_spawner.core.lease import LeaseState
from allotment_spawner.wire import (
    DeviceView,
    ExpectedStart,
    Launch,
    LeaseEvent,
    LeaseReply,
    LeaseView,
    Problem,
    Work,
)

from allotment_hub.accounting.queueing import Expected
from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.history import History
from allotment_hub.broker.services.ledger import Ledger
from allotment_hub.broker.store.records import Lease

__all__ = ["LeaseViews"]

_EVENT: dict[LeaseState, Literal["queued", "granted", "active", "ended"]] = {
    LeaseState.QUEUED: "queued",
    LeaseState.GRANTED: "granted",
    LeaseState.ACTIVE: "active",
    LeaseState.ENDING: "ended",
    LeaseState.ENDED: "ended",
}


class LeaseViews:
    """Adds place and expected start to what the book holds."""

    def __init__(
        self,
        *,
        book: Book,
        history: History,
        clock: Callable[[], datetime],
        waits_for: Callable[[Lease], Work | None],
        ledger: Ledger,
    ) -> None:
        """`waits_for`: what else than a device a queued lease waits for, from memory."""
        self._ledger = ledger
        self._waits_for = waits_for
        self._book = book
        self._history = history
        self._clock = clock

    def view(self, lease: Lease) -> LeaseView:
        place, expected = None, None
        wants = lease.wants or {}
        if lease.state is LeaseState.QUEUED:
            place = self._book.place(lease.id, self._clock())
            expected = self._history.expected(lease)
        return LeaseView(
            id=lease.id,
            kind="session",
            user=lease.user,
            server=lease.server,
            environment=lease.environment,
            flavor=lease.flavor,
            state=lease.state,
            devices=tuple(
                DeviceView(
                    uuid=device.uuid,
                    node=device.node,
                    gpu_uuid=device.gpu_uuid,
                    profile=device.profile,
                    placement=device.placement,
                )
                for device in lease.devices
                if device.uuid is not None and lease.granted_at is not None
            ),
            place=place,
            expected_start=_expected(expected),
            class_=lease.queue_class,
            granted_at=lease.granted_at,
            active_at=lease.active_at,
            stopped_at=lease.stopped_at,
            ended_at=lease.ended_at,
            end_reason=lease.end_reason,
            price_per_hour=lease.price_per_hour,
            version=wants.get("version"),
            datasets=tuple(wants.get("datasets", ())),
            charged_to=wants.get("charged_to"),
            cost=self._ledger.cost(lease, self._clock()),
            currency=self._ledger.currency(lease),
        )

    def reply(self, lease: Lease) -> LeaseReply:
        granted = lease.state in (LeaseState.GRANTED, LeaseState.ACTIVE)
        launch = Launch.model_validate(lease.launch) if granted and lease.launch is not None else None
        return LeaseReply(
            lease=self.view(lease),
            deadline_at=lease.deadline_at if lease.state is LeaseState.GRANTED else None,
            launch=launch,
            refusal=None if lease.refusal is None else Problem.model_validate(lease.refusal),
            waits_for=self._waits_for(lease) if lease.state is LeaseState.QUEUED else None,
        )

    def event(self, lease: Lease) -> LeaseEvent:
        return LeaseEvent(type=_EVENT[lease.state], reply=self.reply(lease))


def _expected(expected: Expected | None) -> ExpectedStart | None:
    return None if expected is None else ExpectedStart(earliest=expected.earliest, latest=expected.latest)
