"""What every route gets: the services, the caller, and who may do what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, cast

from allotment_spawner.core.errors import BrokerUnavailable, NoSuchLease, NotAllowed
from fastapi import Depends, Request, Security
from fastapi.security import APIKeyCookie, HTTPBearer

from allotment_hub.broker.auth import SESSION_COOKIE, Auth
from allotment_hub.broker.browser_sessions import SignInSeal
from allotment_hub.broker.hub_client import HubClient
from allotment_hub.broker.identity import Caller
from allotment_hub.broker.problems import PROBLEM_TYPE
from allotment_hub.broker.services.budget_views import BudgetsApi
from allotment_hub.broker.services.corrections import Corrections
from allotment_hub.broker.services.datasets import DatasetsApi
from allotment_hub.broker.services.disk import DiskApi
from allotment_hub.broker.services.facade import (
    ChangesApi,
    ExplainerApi,
    FleetApi,
    HomesApi,
    LastCallsApi,
    LeasesApi,
    MonitoringApi,
    NoticesApi,
    SeriesApi,
)
from allotment_hub.broker.services.images import ImagesApi
from allotment_hub.broker.services.mounts import MountsApi
from allotment_hub.broker.services.saved import SavedApi
from allotment_hub.broker.services.usage import Usage
from allotment_hub.broker.streams import Streams
from allotment_hub.dashboard.render import Pages

__all__ = [
    "ONLY_OPERATORS",
    "ONLY_THE_HUB",
    "PREFIX",
    "PROBLEMS",
    "ActAs",
    "Context",
    "Ctx",
    "KnownCaller",
    "Operator",
    "check_may_see",
    "no_such_lease",
    "whose",
]

PREFIX: Final = "/services/allotment"
_PROBLEM: Final[dict[str, Any]] = {
    "description": "A refusal (RFC 9457)",
    "content": {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {"4XX": _PROBLEM, "503": _PROBLEM}


@dataclass(slots=True)
class Context:
    """Everything the routes need. `ready` turns true after the first comparison with the machine."""

    leases: LeasesApi
    fleet: FleetApi
    explainer: ExplainerApi
    images: ImagesApi
    mounts: MountsApi
    datasets: DatasetsApi
    notices: NoticesApi
    last_calls: LastCallsApi
    homes: HomesApi
    disk: DiskApi
    saved: SavedApi
    series: SeriesApi
    corrections: Corrections
    usage: Usage
    budgets: BudgetsApi
    changes: ChangesApi
    monitoring: MonitoringApi
    hub: HubClient
    auth: Auth
    seal: SignInSeal
    streams: Streams
    pages: Pages
    simulated: bool
    title: str
    currency: str
    engine: str
    public_url: str
    version: str
    ready: bool = False


def _context(request: Request) -> Context:
    return cast(Context, request.app.state.context)


Ctx = Annotated[Context, Depends(_context)]
_bearer = HTTPBearer(auto_error=False, description="A token of the hub")
_cookie = APIKeyCookie(name=SESSION_COOKIE, auto_error=False, description="The dashboard's sign-in")


async def _known(
    request: Request,
    context: Ctx,
    _by_token: Annotated[object, Security(_bearer)],
    _by_cookie: Annotated[object, Security(_cookie)],
) -> Caller:
    caller = await context.auth.caller(request)
    request.state.caller = caller
    if not context.ready:
        raise BrokerUnavailable(
            "The broker is comparing its book with the machine.", "Try again in a few seconds."
        )
    return caller


KnownCaller = Annotated[Caller, Depends(_known)]


def _act_as(caller: KnownCaller) -> Caller:
    if not caller.act_as:
        raise NotAllowed("Only the hub may do this.", "Start and stop servers through the hub.")
    return caller


def _operator(caller: KnownCaller) -> Caller:
    if not caller.operator:
        raise NotAllowed(
            "Only operators may see or change this.", "Ask a hub admin to add you to the operators' group."
        )
    return caller


ActAs = Annotated[Caller, Depends(_act_as)]
ONLY_THE_HUB: Final = Depends(_act_as)
Operator = Annotated[Caller, Depends(_operator)]
ONLY_OPERATORS: Final = Depends(_operator)


def whose(caller: Caller, user: str | None) -> str:
    """The person that a list of choices is for: the caller, or whom an act-as caller names."""
    if caller.act_as:
        if user is None:
            raise NotAllowed("A service has no choices of its own.", "Say for whom: ?user=NAME.")
        return user
    if caller.person is None:
        raise NotAllowed("This service may not act for people.", "It needs custom:allotment:act-as.")
    if user is not None and user != caller.person:
        raise NotAllowed("You can ask only for yourself.", "Leave ?user= away.")
    return caller.person


async def check_may_see(context: Context, caller: Caller, lease_id: str) -> str:
    """The owner's name. Another's lease and one that never was are told apart by nobody but operators:
    the same words after the same one look-up."""
    if not lease_id.isascii() or not lease_id.replace("-", "").isalnum() or len(lease_id) > 64:
        raise no_such_lease()
    try:
        owner = await context.leases.owner_of(lease_id)
    except NoSuchLease:
        raise no_such_lease() from None
    if not (caller.act_as or caller.operator or owner == caller.person):
        raise no_such_lease()
    return owner


def no_such_lease() -> NoSuchLease:
    return NoSuchLease(
        "There is no such lease, or it is not yours.", "List yours: GET leases (allot leases)."
    )
