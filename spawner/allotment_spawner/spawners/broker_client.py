"""The hub's client of the broker: bearer from a file, bounded retries, problems as refusals."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

import httpx
from httpx_sse import EventSource
from pydantic import Field, TypeAdapter, ValidationError

from allotment_spawner.core.errors import BrokerUnavailable, Refusal
from allotment_spawner.core.lease import EndReason
from allotment_spawner.spawners.refusals import problem_refusal
from allotment_spawner.wire import (
    Activate,
    Confirm,
    DatasetView,
    EnvironmentView,
    FlavorView,
    HomeView,
    LastCall,
    LeaseEvent,
    LeaseReply,
    LeaseRequest,
    LeaseView,
    MountView,
    Problem,
    StartsView,
)

__all__ = ["BrokerClient"]

_FLAVORS = TypeAdapter(list[FlavorView])
_ENVIRONMENTS = TypeAdapter(list[EnvironmentView])
_LEASES = TypeAdapter(list[LeaseView])
_HOMES = TypeAdapter(Annotated[list[HomeView], Field(min_length=1)])
_MOUNTS = TypeAdapter(list[MountView])
_DATASETS = TypeAdapter(list[DatasetView])
_PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.0)
_SILENCE_S = 35.0
"""The broker sends a comment every 10 s; a stream silent for longer is dead."""
_UNAVAILABLE = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT})


class BrokerClient:
    """One for a hub. Every method raises the broker's `Refusal`, or `BrokerUnavailable` when the
    broker did not answer for `retry_for_s` (all calls are idempotent, so they are repeated)."""

    def __init__(
        self,
        *,
        url: str,
        token_file: Path,
        retry_for_s: float = 20.0,
        transport: httpx.AsyncBaseTransport | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._token_file = token_file
        self._token: tuple[tuple[int, int, int], str] | None = None
        self._retry_for_s = retry_for_s
        self._monotonic = monotonic
        self._sleep = sleep
        self._http = httpx.AsyncClient(
            base_url=f"{url.rstrip('/')}/api/v1/",
            timeout=httpx.Timeout(15.0, connect=3.0, pool=None),
            # one stream for each waiting person: no bound on connections
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
            transport=transport,
            trust_env=False,
        )

    async def close(self) -> None:
        await self._http.aclose()

    # -- leases ------------------------------------------------------------------------------

    async def request(self, body: LeaseRequest, *, attempt: str) -> LeaseReply:
        """Ask for a lease; the same `attempt` again gives the same reply."""
        return await self._reply("POST", "leases", attempt=attempt, json=body.model_dump(mode="json"))

    async def renew(self, lease: str, *, attempt: str) -> LeaseReply:
        return await self._reply("PUT", f"leases/{lease}/renew", attempt=attempt)

    async def confirm(self, lease: str, *, attempt: str, body: Confirm) -> LeaseReply:
        """The fence: raises `GrantExpired` or `StaleAttempt` when the workload must not be started."""
        return await self._reply(
            "PUT", f"leases/{lease}/confirm", attempt=attempt, json=body.model_dump(mode="json")
        )

    async def activate(self, lease: str, *, attempt: str, body: Activate) -> LeaseReply:
        return await self._reply(
            "PUT", f"leases/{lease}/active", attempt=attempt, json=body.model_dump(mode="json")
        )

    async def release(
        self, lease: str, *, reason: EndReason, attempt: str | None = None, retry_for_s: float | None = None
    ) -> LeaseReply:
        return await self._reply(
            "DELETE", f"leases/{lease}", attempt=attempt, params={"reason": reason}, retry_for_s=retry_for_s
        )

    async def last_call(self, lease: str, *, wait_s: float) -> LastCall:
        """Have the session's open pages save. Tried once: a stop does not wait for a broker that is down."""
        answer = await self._call("POST", f"leases/{lease}/last-call", json={"wait_s": wait_s}, retry_for_s=0)
        return LastCall.model_validate_json(answer.content)

    async def get(self, lease: str) -> LeaseReply:
        return await self._reply("GET", f"leases/{lease}")

    async def leases(
        self, *, user: str | None = None, server: str | None = None, live: bool | None = None, limit: int = 50
    ) -> list[LeaseView]:
        """Newest first; for everybody when `user` is None."""
        asked: dict[str, Any] = {"user": user, "server": server, "live": live, "limit": limit}
        params = {key: value for key, value in asked.items() if value is not None}
        return _LEASES.validate_json((await self._call("GET", "leases", params=params)).content)

    async def explain(self, lease: str) -> dict[str, Any]:
        """The broker's explanation as JSON: sentence, rules, devices, help."""
        answer = (await self._call("GET", f"leases/{lease}/explain")).json()
        return answer if isinstance(answer, dict) else {}

    # -- what there is -----------------------------------------------------------------------

    async def flavors(self, user: str) -> list[FlavorView]:
        return _FLAVORS.validate_json((await self._call("GET", "flavors", params={"user": user})).content)

    async def environments(self, user: str) -> list[EnvironmentView]:
        answer = await self._call("GET", "environments", params={"user": user})
        return _ENVIRONMENTS.validate_json(answer.content)

    async def home(self, user: str) -> HomeView:
        """How full this person's home is; asked once, as somebody looks at an empty page meanwhile."""
        answer = await self._call("GET", "homes", params={"user": user}, retry_for_s=0)
        return _HOMES.validate_json(answer.content)[0]

    async def starts(self) -> StartsView:
        """Whether anything new is started at all now."""
        return StartsView.model_validate_json((await self._call("GET", "starts", retry_for_s=0)).content)

    async def mounts(self, user: str) -> list[MountView]:
        answer = await self._call("GET", "mounts", params={"user": user}, retry_for_s=0)
        return _MOUNTS.validate_json(answer.content)

    async def datasets(self, user: str) -> list[DatasetView]:
        answer = await self._call("GET", "datasets", params={"user": user}, retry_for_s=0)
        return _DATASETS.validate_json(answer.content)

    # -- streams: one connection each, the caller comes back after BrokerUnavailable ---------------

    async def events(self, lease: str, *, attempt: str) -> AsyncGenerator[LeaseEvent, None]:
        """The lease's events from its current state on; while open, the waiter counts as connected."""
        async with self._stream(f"leases/{lease}/events", {"attempt": attempt}) as source:
            async for event in source.aiter_sse():
                yield LeaseEvent.model_validate_json(event.data)

    async def changes(self) -> AsyncGenerator[int, None]:
        """Version numbers, one whenever flavors or places may have changed."""
        async with self._stream("events") as source:
            async for event in source.aiter_sse():
                if event.event == "changed":
                    yield int(event.json()["version"])

    # -- plumbing ----------------------------------------------------------------------------

    async def _reply(self, method: str, path: str, **options: Any) -> LeaseReply:
        return LeaseReply.model_validate_json((await self._call(method, path, **options)).content)

    async def _call(
        self,
        method: str,
        path: str,
        *,
        attempt: str | None = None,
        retry_for_s: float | None = None,
        **options: Any,
    ) -> httpx.Response:
        deadline = self._monotonic() + (self._retry_for_s if retry_for_s is None else retry_for_s)
        tries = 0
        while True:
            try:
                response = await self._http.request(method, path, headers=self._headers(attempt), **options)
                return _checked(response)
            except (httpx.TransportError, BrokerUnavailable) as error:
                pause = _PAUSES_S[min(tries, len(_PAUSES_S) - 1)]
                if self._monotonic() + pause > deadline:
                    raise _unavailable() from error
                tries += 1
                await self._sleep(pause)

    @asynccontextmanager
    async def _stream(self, path: str, params: Mapping[str, str] | None = None) -> AsyncIterator[EventSource]:
        options: dict[str, Any] = {
            "params": params,
            "headers": {**self._headers(None), "Accept": "text/event-stream", "Cache-Control": "no-store"},
            "timeout": httpx.Timeout(15.0, connect=3.0, read=_SILENCE_S, pool=None),
        }
        try:
            async with self._http.stream("GET", path, **options) as answer:
                if not answer.is_success:
                    await answer.aread()
                _checked(answer)
                yield EventSource(answer)
        except (httpx.TransportError, ValidationError) as error:
            raise _unavailable() from error

    def _headers(self, attempt: str | None) -> dict[str, str]:
        headers = {"Authorization": f"Bearer {self._bearer()}"}
        if attempt is not None:
            headers["Idempotency-Key"] = attempt
        return headers

    def _bearer(self) -> str:
        """The token, read again whenever the file was replaced."""
        try:
            status = self._token_file.stat()
            mark = (status.st_mtime_ns, status.st_ino, status.st_size)
            if self._token is None or self._token[0] != mark:
                self._token = (mark, self._token_file.read_text(encoding="ascii").strip())
            return self._token[1]
        except (OSError, ValueError) as error:
            if self._token is not None:
                return self._token[1]
            raise BrokerUnavailable(
                "The hub cannot read its key for the broker.", "Tell an operator: the token file is missing."
            ) from error


def _checked(response: httpx.Response) -> httpx.Response:
    """The response, or the refusal in it. Nothing but a problem of the broker's own is believed."""
    if response.is_success:
        return response
    refusal = _refusal_in(response)
    if refusal is not None:
        raise refusal
    raise _unavailable()


def _refusal_in(response: httpx.Response) -> Refusal | None:
    if response.status_code in _UNAVAILABLE and not response.headers.get("content-type", "").startswith(
        "application/problem+json"
    ):
        return None
    try:
        return problem_refusal(Problem.model_validate_json(response.content))
    except ValidationError:
        return None


def _unavailable() -> BrokerUnavailable:
    return BrokerUnavailable(
        "Allotment's broker, which hands out the devices, does not answer.",
        "Try again in a minute; tell an operator if it stays.",
    )
