"""What spawners and people do with leases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from typing import Any

from allotment_spawner.core.errors import (
    BudgetExhausted,
    ChargeNotAllowed,
    DatasetUnavailable,
    DeviceMismatch,
    DiskFull,
    EnvironmentNotAllowed,
    EnvironmentUnavailable,
    FlavorNotAllowed,
    FlavorUnavailable,
    LimitReached,
    LocalEngineClosed,
    Refusal,
    TooManySessions,
    UnknownDataset,
    UnknownVersion,
)
from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_spawner.wire import Activate, Confirm, LeaseEvent, LeaseReply, LeaseRequest, LeaseView

from allotment_hub.broker.services.admission import Admission
from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.changes import Signals
from allotment_hub.broker.services.ending import begin_end
from allotment_hub.broker.services.environments import Environments
from allotment_hub.broker.services.extras import Ask, Extras
from allotment_hub.broker.services.lease_views import LeaseViews
from allotment_hub.broker.services.ledger import Ledger
from allotment_hub.broker.services.outages import engine_down_since
from allotment_hub.broker.services.planning import pools_in
from allotment_hub.broker.services.refusals import refusal_for
from allotment_hub.broker.services.requests import Entry, again, enter, record_refusal, stale
from allotment_hub.broker.services.scheduler import Scheduler
from allotment_hub.broker.services.start_rules import Check, StartRules
from allotment_hub.broker.services.steps import activate, confirm, no_such_lease, renew
from allotment_hub.broker.services.tariffs import Tariffs
from allotment_hub.broker.services.waiters import Waiters
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.store import Store
from allotment_hub.broker.store.transaction import Transaction
from allotment_hub.site import Policies

__all__ = ["Leases"]

_KEPT = (
    BudgetExhausted,
    ChargeNotAllowed,
    DatasetUnavailable,
    DiskFull,
    EnvironmentNotAllowed,
    EnvironmentUnavailable,
    FlavorNotAllowed,
    FlavorUnavailable,
    LimitReached,
    LocalEngineClosed,
    TooManySessions,
    UnknownDataset,
    UnknownVersion,
)


class Leases:
    """Implements `LeasesApi`; every write is one transaction, every read comes from memory if it can."""

    def __init__(
        self,
        *,
        policies: Policies,
        store: Store,
        book: Book,
        admission: Admission,
        environments: Environments,
        extras: Extras,
        rules: StartRules,
        scheduler: Scheduler,
        waiters: Waiters,
        signals: Signals,
        views: LeaseViews,
        ledger: Ledger,
        tariffs: Tariffs,
        problem: Callable[[Refusal], dict[str, Any]],
        clock: Callable[[], datetime],
        settle_s: float,
        being_made: Callable[[Lease], bool],
    ) -> None:
        """`settle_s`: how long a request waits for its grant before it answers `queued`; `being_made`: what
        a lease lacks is there in a moment."""
        self._settle_s = settle_s
        self._being_made = being_made
        self._policies = policies
        self._store = store
        self._book = book
        self._admission = admission
        self._environments = environments
        self._extras = extras
        self._rules = rules
        self._scheduler = scheduler
        self._waiters = waiters
        self._signals = signals
        self._views = views
        self._ledger = ledger
        self._tariffs = tariffs
        self._problem = problem
        self._clock = clock

    async def request(self, *, attempt: str, body: LeaseRequest) -> LeaseReply:
        lease = await self._store.read(lambda tx: again(tx, attempt, body))
        if lease is None:
            lease = await self._enter(attempt, body)
        with ExitStack() as open_:
            if lease.state is LeaseState.QUEUED:
                open_.enter_context(self._waiters.connected(lease.id))
                await self._settle(lease.id)
            return await self.get(lease.id)

    async def _enter(self, attempt: str, body: LeaseRequest) -> Lease:
        self._admission.names_exist(body.flavor, body.environment)
        groups = await self._admission.groups_of(body.user)
        now = self._clock()
        price = self._tariffs.quoted(body.flavor, {}).rate(now)
        entry = Entry(attempt, body, None, now, self._policies.grant_deadline_s, price)
        try:
            version = self._environments.wanted_version(body)
            wish = self._admission.check(body.user, body.flavor, body.environment, groups, version)
            pools = None if wish is None else pools_in(wish)
            ask = Ask(body, groups, wish)
            wants = await self._extras.check(ask)
            price = self._tariffs.quoted(body.flavor, wants).rate(now)
            entry = replace(entry, pools=pools, wants=wants, price=price)
            check = self._rules.check(ask, wants)
            return await self._store.write("request", lambda tx: _enter_once(tx, entry, check))
        except _KEPT as refusal:
            why = refusal
            await self._store.write(
                "refuse",
                lambda tx: record_refusal(tx, entry, problem=self._problem, why=why),
            )
            raise

    async def _settle(self, lease_id: str) -> None:
        """Wait a moment, so that a free device comes back granted in the first answer."""
        with self._signals.of(lease_id) as news:
            try:
                async with asyncio.timeout(self._settle_s):
                    await self._scheduler.kick()
                    while (lease := self._book.get(lease_id)) is not None and self._soon(lease):
                        news.clear()
                        await news.wait()
            except TimeoutError:
                return

    def _soon(self, lease: Lease) -> bool:
        return lease.reserved or self._being_made(lease)

    async def watch(self, *, lease_id: str, attempt: str | None) -> AsyncIterator[LeaseEvent]:
        lease = await self._find(lease_id)
        if attempt is not None and lease.attempt != attempt:
            raise stale()
        last: LeaseEvent | None = None
        with ExitStack() as open_:
            news = open_.enter_context(self._signals.of(lease_id))
            if attempt is not None and lease.state is LeaseState.QUEUED:
                open_.enter_context(self._waiters.connected(lease_id))
                self._scheduler.kick()
            while True:
                news.clear()
                lease = await self._find(lease_id)
                if attempt is not None and lease.attempt != attempt:
                    return
                event = self._views.event(lease)
                told = _without_cost(event)
                if told != last:
                    yield event
                    last = told
                    if event.type == "ended" or (attempt is not None and event.type != "queued"):
                        return
                await news.wait()

    async def renew(self, *, lease_id: str, attempt: str) -> LeaseReply:
        return self._views.reply(
            await self._store.write(
                "renew", lambda tx: renew(tx, lease_id, attempt, self._clock(), self._policies)
            )
        )

    async def confirm(self, *, lease_id: str, attempt: str, body: Confirm) -> LeaseReply:
        return self._views.reply(
            await self._store.write(
                "confirm",
                lambda tx: confirm(tx, lease_id, attempt, body.engine_ref, self._clock(), self._policies),
            )
        )

    async def activate(self, *, lease_id: str, attempt: str, body: Activate) -> LeaseReply:
        result = await self._store.write(
            "activate", lambda tx: activate(tx, lease_id, attempt, body.devices_seen, self._clock())
        )
        if isinstance(result, DeviceMismatch):
            raise result
        return self._views.reply(result)

    async def release(self, *, lease_id: str, reason: EndReason, attempt: str | None) -> LeaseReply:
        def work(tx: Transaction) -> Lease:
            lease = tx.lease(lease_id)
            if lease is None:
                raise no_such_lease()
            if attempt is not None and lease.attempt != attempt:
                raise stale()
            since = engine_down_since(tx)
            if since is not None and reason is EndReason.WORKLOAD_EXITED and lease.state is LeaseState.ACTIVE:
                # the hub sees it before we do: it went down with its engine
                return self._end_with_engine(tx, lease, since)
            return begin_end(tx, lease_id, reason, self._clock()) or lease

        return self._views.reply(await self._store.write("release", work))

    def _end_with_engine(self, tx: Transaction, lease: Lease, since: datetime) -> Lease:
        reason = EndReason.ENGINE_STOPPED
        why = refusal_for(reason)
        refusal = None if why is None else self._problem(why)
        return begin_end(tx, lease.id, reason, self._clock(), stopped_at=since, refusal=refusal) or lease

    async def get(self, lease_id: str) -> LeaseReply:
        return self._views.reply(await self._find(lease_id))

    async def find(self, *, user: str | None, server: str | None, live: bool, limit: int) -> list[LeaseView]:
        found = await self._store.read(lambda tx: tx.find(user=user, server=server, live=live, limit=limit))
        await self._ledger.know(found)
        return [self._views.view(lease) for lease in found]

    async def owner_of(self, lease_id: str) -> str:
        return (await self._find(lease_id)).user

    async def _find(self, lease_id: str) -> Lease:
        lease = self._book.get(lease_id) or await self._store.read(lambda tx: tx.lease(lease_id))
        if lease is None:
            raise no_such_lease()
        await self._ledger.know([lease])
        return lease


def _enter_once(tx: Transaction, entry: Entry, check: Check) -> Lease:
    """The same key may have come twice at the same time: looked at again inside the transaction."""
    lease = again(tx, entry.attempt, entry.body)
    return lease if lease is not None else enter(tx, entry, check=check)


def _without_cost(event: LeaseEvent) -> LeaseEvent:
    """What makes two events differ: the cost of a running session grows between any two looks."""
    lease = event.reply.lease.model_copy(update={"cost": None})
    return event.model_copy(update={"reply": event.reply.model_copy(update={"lease": lease})})
