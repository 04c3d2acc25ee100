"""What the API and the loops are made of, from the shared parts."""

from __future__ import annotations

from typing import Any

from allotment_spawner.core.errors import Refusal

from allotment_hub.broker.listener import Listener
from allotment_hub.broker.parts import Parts
from allotment_hub.broker.problems import problem_of
from allotment_hub.broker.reconciler import Reconciler
from allotment_hub.broker.services.environment_views import EnvironmentViews
from allotment_hub.broker.services.explain import Explainer
from allotment_hub.broker.services.fleet import Fleet
from allotment_hub.broker.services.hub_watch import HubWatch
from allotment_hub.broker.services.lease_views import LeaseViews
from allotment_hub.broker.services.leases import Leases

__all__ = ["explainer", "fleet", "leases", "listener", "reconciler"]


def listener(parts: Parts) -> Listener:
    return Listener(parts.book, parts.signals, parts.changes, parts.bell, parts.scheduler)


def leases(parts: Parts, settle_s: float) -> Leases:
    return Leases(
        policies=parts.site.policies,
        store=parts.store,
        book=parts.book,
        admission=parts.admission,
        environments=parts.environments,
        extras=parts.extras,
        rules=parts.money.budgets.rules(parts.admission),
        scheduler=parts.scheduler,
        waiters=parts.waiters,
        signals=parts.signals,
        views=LeaseViews(
            book=parts.book,
            history=parts.history,
            clock=parts.clock,
            waits_for=parts.room_parts.waits_for(parts.data.dataset_part.waits_for),
            ledger=parts.money.ledger,
        ),
        ledger=parts.money.ledger,
        tariffs=parts.money.tariffs,
        problem=_problem,
        clock=parts.clock,
        settle_s=settle_s,
        being_made=parts.room_parts.being_made,
    )


def fleet(parts: Parts) -> Fleet:
    return Fleet(
        site=parts.site,
        catalog=parts.catalog,
        environments=EnvironmentViews(
            catalog=parts.catalog,
            environments=parts.environments,
            images=parts.image_book,
            admission=parts.admission,
        ),
        admission=parts.admission,
        situation=parts.situation,
        observations=parts.seen,
        history=parts.history,
        upkeep=parts.upkeep,
        quotes=parts.money.budgets.quotes,
        no_room=parts.room_parts.disk.reason,
    )


def explainer(parts: Parts) -> Explainer:
    return Explainer(
        catalog=parts.catalog,
        store=parts.store,
        book=parts.book,
        admission=parts.admission,
        situation=parts.situation,
        observations=parts.seen,
        scheduler=parts.scheduler,
        waiters=parts.waiters,
        history=parts.history,
        clock=parts.clock,
        waits_for=parts.data.dataset_part.waits_for,
        no_room=parts.room_parts.disk.reason,
    )


def reconciler(parts: Parts) -> Reconciler:
    return Reconciler(
        policies=parts.site.policies,
        store=parts.store,
        book=parts.book,
        observations=parts.seen,
        books=parts.books,
        hub_watch=HubWatch(hub=parts.hub, clock=parts.clock),
        waiters=parts.waiters,
        granting=parts.granting,
        scheduler=parts.scheduler,
        stopping=parts.stopping,
        upkeep=parts.upkeep,
        announced=parts.announced,
        history=parts.history,
        changes=parts.changes,
        bell=parts.bell,
        problem=_problem,
        clock=parts.clock,
    )


def _problem(refusal: Refusal) -> dict[str, Any]:
    return problem_of(refusal).model_dump(mode="json")
