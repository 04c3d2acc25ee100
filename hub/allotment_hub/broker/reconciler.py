"""Compares the book with machine, engine and hub, and lets the services put right what differs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal

from allotment_spawner.core.errors import DeviceMismatch, Refusal
from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_spawner.engines.base import Workload

from allotment_hub.broker.services.announced import AnnouncedStops
from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.books import Books
from allotment_hub.broker.services.changes import Bell, Changes
from allotment_hub.broker.services.decide import (
    Action,
    Adopt,
    End,
    Extend,
    Seen,
    decide_active,
    decide_granted,
    decide_queued,
    needs_hub,
)
from allotment_hub.broker.services.ending import begin_end
from allotment_hub.broker.services.granting import Granting
from allotment_hub.broker.services.history import History
from allotment_hub.broker.services.hub_watch import Answer, HubWatch
from allotment_hub.broker.services.observe import Observations
from allotment_hub.broker.services.refusals import refusal_for
from allotment_hub.broker.services.scheduler import Scheduler
from allotment_hub.broker.services.steps import activate
from allotment_hub.broker.services.stopping import Stopping
from allotment_hub.broker.services.upkeep import Upkeep
from allotment_hub.broker.services.waiters import Waiters
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.store import Store
from allotment_hub.broker.store.transaction import Transaction
from allotment_hub.site import Policies

__all__ = ["Reconciler"]

_log = logging.getLogger(__name__)

_IDLE_S = 2.0
_ENDING_S = 0.5
_HISTORY_S = 60


class Reconciler:
    """`once` is one round; it may be repeated and interrupted anywhere."""

    def __init__(
        self,
        *,
        policies: Policies,
        store: Store,
        book: Book,
        observations: Observations,
        books: Books,
        hub_watch: HubWatch,
        waiters: Waiters,
        granting: Granting,
        scheduler: Scheduler,
        stopping: Stopping,
        upkeep: Upkeep,
        announced: AnnouncedStops,
        history: History,
        changes: Changes,
        bell: Bell,
        problem: Callable[[Refusal], dict[str, Any]],
        clock: Callable[[], datetime],
    ) -> None:
        self._policies = policies
        self._store = store
        self._book = book
        self._seen = observations
        self._books = books
        self._hub = hub_watch
        self._waiters = waiters
        self._granting = granting
        self._scheduler = scheduler
        self._stopping = stopping
        self._upkeep = upkeep
        self._announced = announced
        self._history = history
        self._changes = changes
        self._bell = bell
        self._problem = problem
        self._clock = clock
        self._known: dict[str, bool] = {}
        self._history_at: datetime | None = None

    def kick(self) -> None:
        """Have the next round now instead of in a moment."""
        self._bell.ring()

    async def run(self) -> None:
        """Rounds until cancelled. A round that fails is logged and tried again."""
        while True:
            await self._bell.wait(_ENDING_S if self._book.in_state(LeaseState.ENDING) else _IDLE_S)
            try:
                await self.once()
            except Exception:  # noqa: BLE001 - one bad round must not stop all later ones
                _log.exception("a round of the reconciler failed; the next one tries again")

    async def once(self) -> None:
        """Look, decide, apply. The book is read before the looks: a workload of a lease that was active
        then must show up now, and one of a lease that was ending then cannot be started any more."""
        before = self._book.all()
        version = self._seen.version
        await self._seen.look_at_engine()
        await self._books.looked_at_engine()
        await self._seen.look_at_agent()
        await self._books.looked_at_agent()
        await self._sort_workloads()
        await self._restarted(before)
        await self._granted([lease for lease in before if lease.state is LeaseState.GRANTED])
        await self._active([lease for lease in before if lease.state is LeaseState.ACTIVE])
        await self._queued([lease for lease in before if lease.state is LeaseState.QUEUED])
        for lease in before:
            if lease.state is LeaseState.ENDING:
                await self._stopping.look_at(lease)
        await self._announced.round()
        await self._books.sessions_ended()
        await self._upkeep.round()
        await self._books.post()
        self._hub.keep_only({lease.id for lease in before})
        self._waiters.keep_only({lease.id for lease in self._book.all()})
        if self._history_at is None or self._clock() - self._history_at > timedelta(seconds=_HISTORY_S):
            self._history_at = self._clock()
            await self._history.load()
        if self._seen.version != version:
            self._changes.bump()
        self._scheduler.kick()

    async def _sort_workloads(self) -> None:
        """Workloads of ended leases are stopped; those of unknown leases are reported and left alone."""
        if self._seen.engine_problem is not None:
            return
        strange = [lease_id for lease_id in self._seen.workloads if self._book.get(lease_id) is None]
        new = [lease_id for lease_id in strange if lease_id not in self._known]
        if new:
            found = await self._store.read(lambda tx: {one: tx.lease(one) is not None for one in new})
            self._known.update(found)
        strays: list[Workload] = list(self._seen.unnamed)
        for lease_id in strange:
            for workload in self._seen.workloads[lease_id]:
                if not self._known[lease_id]:
                    strays.append(workload)
                elif self._book.get(lease_id) is None:
                    self._stopping.stop(workload.engine_ref)
        self._seen.set_strays(strays)
        self._known = {one: known for one, known in self._known.items() if one in strange}

    async def _restarted(self, leases: Sequence[Lease]) -> None:
        """Devices of an earlier boot do not exist any more, whatever runs."""
        inventory = self._seen.inventory
        if self._seen.agent_problem is not None or inventory is None:
            return
        for lease in leases:
            old = lease.boot_id is not None and lease.boot_id != inventory.boot_id
            if old and lease.devices and lease.state in (LeaseState.GRANTED, LeaseState.ACTIVE):
                # nobody pays for the time in which the machine was off
                last = self._books.last_seen(lease.boot_id or "")
                await self._apply(lease, End(EndReason.NODE_RESTARTED, stopped_at=last))
        await self._books.sessions_of_old_boots_ended(inventory.boot_id)

    async def _granted(self, leases: Sequence[Lease]) -> None:
        asked = [lease for lease in leases if needs_hub(lease, Seen(self._clock()), self._policies)]
        answers = await self._hub.ask(asked)
        for lease in leases:
            await self._apply(lease, decide_granted(lease, self._view_of(lease, answers), self._policies))

    async def _active(self, leases: Sequence[Lease]) -> None:
        """The hub is asked about each session now and then, and at once where the workload is gone."""
        gone = [lease for lease in leases if self._workload_of(lease) in ("exited", "gone")]
        due = self._hub.due(leases)
        asked = {lease.id: lease for lease in (*gone, *due)}
        answers = await self._hub.ask(list(asked.values()))
        for lease in asked.values():
            await self._apply(lease, decide_active(lease, self._view_of(lease, answers)))

    async def _queued(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            why = self._granting.problem(lease)
            if why is not None:
                await self._store.write("refuse", partial(self._refuse, lease, why))
                continue
            action = decide_queued(
                lease,
                self._clock(),
                self._waiters.gone_for(lease.id),
                self._policies,
                offered=self._granting.offered(lease),
            )
            await self._apply(lease, action)

    def _workload_of(self, lease: Lease) -> Literal["running", "created", "exited", "gone", "unknown"]:
        if self._seen.engine_problem is not None:
            return "unknown"
        states = {workload.state for workload in self._seen.workloads.get(lease.id, ())}
        for state in ("running", "created", "exited"):
            if state in states:
                return state
        return "gone"

    def _view_of(self, lease: Lease, answers: dict[str, Answer]) -> Seen:
        return Seen(
            now=self._clock(),
            workload=self._workload_of(lease),
            hub=answers.get(lease.id, "unknown"),
            absent_for=self._hub.absent_for(lease.id),
            outage_since=self._seen.outage_since,
        )

    async def _apply(self, lease: Lease, action: Action) -> None:
        """One short transaction that looks again: the lease may have moved on since it was decided."""
        if isinstance(action, End):
            await self._store.write("end", lambda tx: self._end(tx, lease, action))
        elif isinstance(action, Extend):
            await self._store.write("extend", lambda tx: _extend(tx, lease, action))
        elif isinstance(action, Adopt):
            devices = [
                uuid for workload in self._seen.workloads.get(lease.id, ()) for uuid in workload.devices
            ]
            await self._store.write("adopt", lambda tx: _adopt(tx, lease, devices, self._clock()))

    def _refuse(self, lease: Lease, why: Refusal, tx: Transaction) -> None:
        if _unmoved(tx, lease):
            begin_end(tx, lease.id, EndReason.REFUSED, self._clock(), refusal=self._problem(why))

    def _end(self, tx: Transaction, lease: Lease, action: End) -> None:
        if not _unmoved(tx, lease):
            return
        why = refusal_for(action.reason)
        begin_end(
            tx,
            lease.id,
            action.reason,
            self._clock(),
            stopped_at=action.stopped_at,
            refusal=None if why is None else self._problem(why),
        )


def _unmoved(tx: Transaction, lease: Lease) -> bool:
    now = tx.lease(lease.id)
    return now is not None and (now.state, now.attempt, now.engine_ref, now.deadline_at) == (
        lease.state,
        lease.attempt,
        lease.engine_ref,
        lease.deadline_at,
    )


def _extend(tx: Transaction, lease: Lease, action: Extend) -> None:
    if _unmoved(tx, lease):
        tx.set_lease(lease.id, deadline_at=action.deadline_at)


def _adopt(tx: Transaction, lease: Lease, devices: Sequence[str], now: datetime) -> None:
    if not _unmoved(tx, lease):
        return
    result = activate(tx, lease.id, None, devices, now)
    if isinstance(result, DeviceMismatch):
        _log.warning("adopted workload has other devices", extra={"lease": lease.id})
