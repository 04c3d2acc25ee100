"""What the API sees of the broker's services."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Protocol

from allotment_spawner.core.lease import EndReason
from allotment_spawner.wire import (
    Activate,
    Confirm,
    EnvironmentView,
    FlavorView,
    HomeView,
    LastCall,
    LeaseEvent,
    LeaseReply,
    LeaseRequest,
    LeaseView,
    NoticeView,
)

from allotment_hub.broker.services.budget_views import BudgetsApi
from allotment_hub.broker.services.corrections import Corrections
from allotment_hub.broker.services.datasets import DatasetsApi
from allotment_hub.broker.services.disk import DiskApi
from allotment_hub.broker.services.images import ImagesApi
from allotment_hub.broker.services.mounts import MountsApi
from allotment_hub.broker.services.notices import Event, Words
from allotment_hub.broker.services.sample_views import LeaseMetrics
from allotment_hub.broker.services.saved import SavedApi
from allotment_hub.broker.services.usage import Usage
from allotment_hub.broker.services.views import Explanation, FleetView
from allotment_hub.broker.store.homes import HomeState

__all__ = [
    "Broker",
    "ChangesApi",
    "ExplainerApi",
    "FleetApi",
    "HomesApi",
    "LastCallsApi",
    "LeasesApi",
    "MonitoringApi",
    "NoticesApi",
    "SeriesApi",
]


class LeasesApi(Protocol):
    """Every method raises the `Refusal` that fits; ids of unknown leases raise `NoSuchLease`."""

    async def request(self, *, attempt: str, body: LeaseRequest) -> LeaseReply:
        """Queue (or take over) a session lease; waits a moment so that a free device comes back granted."""

    def watch(self, *, lease_id: str, attempt: str | None) -> AsyncIterator[LeaseEvent]:
        """Events, the current state first. With `attempt` the caller is the connected waiter and the
        stream ends with granted or ended; without, an onlooker whose stream ends with ended."""

    async def renew(self, *, lease_id: str, attempt: str) -> LeaseReply:
        """Move the grant's deadline on (during a pull)."""

    async def confirm(self, *, lease_id: str, attempt: str, body: Confirm) -> LeaseReply:
        """The fence: refused after the grant's deadline."""

    async def activate(self, *, lease_id: str, attempt: str, body: Activate) -> LeaseReply:
        """The server is ready on the devices it saw; other devices end the lease (`DeviceMismatch`)."""

    async def release(self, *, lease_id: str, reason: EndReason, attempt: str | None) -> LeaseReply:
        """End it, idempotently. Devices are free again only when the reply's state is `ended`."""

    async def get(self, lease_id: str) -> LeaseReply: ...

    async def find(self, *, user: str | None, server: str | None, live: bool, limit: int) -> list[LeaseView]:
        """Newest first; `live` leaves out ending and ended ones."""

    async def owner_of(self, lease_id: str) -> str:
        """The person whose lease it is."""


class FleetApi(Protocol):
    async def flavors(self, user: str) -> list[FlavorView]: ...

    async def environments(self, user: str) -> list[EnvironmentView]: ...

    async def view(self) -> FleetView: ...


class NoticesApi(Protocol):
    """Sessions that wait, are over or never were raise `WrongState` or `NoSuchLease`."""

    async def tell(self, lease_id: str, words: Words, *, made_by: str) -> NoticeView: ...

    async def tell_all(self, words: Words, *, made_by: str) -> int:
        """Every session that runs; returns how many."""

    async def announce_stop(self, lease_id: str, words: Words, *, after_s: float, made_by: str) -> NoticeView:
        """The session ends then."""

    async def withdraw_stop(self, lease_id: str, *, made_by: str | None) -> int:
        """Of `made_by` only unless None; returns how many."""

    async def of(self, lease_id: str) -> list[NoticeView]:
        """Oldest first."""

    def watch(self, lease_id: str) -> AsyncIterator[Event]:
        """All that is to be shown, then each event; ends with the lease."""


class LastCallsApi(Protocol):
    def listening(self, lease_id: str) -> AbstractContextManager[None]:
        """While open, somebody answers a last call of this session."""

    async def call(self, lease_id: str, *, wait_s: float) -> LastCall:
        """Returns once all have answered, at most `wait_s` later; at once where nobody listens."""

    def answer(self, lease_id: str, call_id: str, *, saved: int, failed: int) -> None: ...


class HomesApi(Protocol):
    """None of these fails for a person who never had a home: all is unknown then."""

    async def of(self, user: str) -> HomeView: ...

    async def all(self) -> list[HomeView]:
        """Those that were ever measured, the fullest first."""

    async def measure(self, user: str) -> HomeView:
        """Now; may take minutes. What could not be measured is said in its `warning`."""

    async def settle(self, user: str, state: HomeState) -> HomeView:
        """What became of the home of a person who left."""


class SeriesApi(Protocol):
    async def of(
        self, lease: LeaseView, *, since: datetime | None, until: datetime | None, step_s: int | None
    ) -> LeaseMetrics:
        """Of its whole life by default; `BadOptions` when that is more than anybody could read."""


class ExplainerApi(Protocol):
    async def explain(self, lease_id: str, *, for_operator: bool) -> Explanation: ...


class MonitoringApi(Protocol):
    async def page(self) -> bytes:
        """Everything that is known now, in Prometheus' text format 0.0.4."""

    def watch(self, user: str | None) -> AsyncIterator[str]:
        """JSON of each round of samples, the last one first: this person's sessions, or everybody's for
        None."""

    def refused(self, code: str) -> None:
        """A start was refused when it was asked for."""


class ChangesApi(Protocol):
    def subscribe(self) -> AsyncIterator[int]:
        """Version numbers, the current one first, then at most two a second."""


class Broker(Protocol):
    """The wired broker: `start` once, then `run` until cancelled, then `close`."""

    @property
    def leases(self) -> LeasesApi: ...

    @property
    def fleet(self) -> FleetApi: ...

    @property
    def explainer(self) -> ExplainerApi: ...

    @property
    def images(self) -> ImagesApi: ...

    @property
    def mounts(self) -> MountsApi: ...

    @property
    def datasets(self) -> DatasetsApi: ...

    @property
    def notices(self) -> NoticesApi: ...

    @property
    def last_calls(self) -> LastCallsApi: ...

    @property
    def homes(self) -> HomesApi: ...

    @property
    def disk(self) -> DiskApi: ...

    @property
    def saved(self) -> SavedApi: ...

    @property
    def series(self) -> SeriesApi: ...

    @property
    def corrections(self) -> Corrections: ...

    @property
    def budgets(self) -> BudgetsApi: ...

    @property
    def usage(self) -> Usage: ...

    @property
    def changes(self) -> ChangesApi: ...

    @property
    def monitoring(self) -> MonitoringApi: ...

    async def start(self) -> None: ...

    async def run(self) -> None: ...

    async def close(self) -> None: ...
