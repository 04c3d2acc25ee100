"""The broker as a notebook server sees it: the session's own lease, its notices, its answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import httpx

from allotment.jupyter.sse import Event, events
from allotment.settings import Settings

__all__ = ["Upstream"]

_SILENCE_S = 35.0
"""The broker sends a comment every 10 s; a stream silent for longer is dead."""
_PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0)


class Upstream:
    """Reads give None where the broker does not answer: a session goes on without it."""

    def __init__(
        self,
        *,
        settings: Settings,
        lease: str,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._lease = lease
        self._sleep = sleep
        self._http = httpx.AsyncClient(
            base_url=f"{settings.url}api/v1/",
            headers={"Authorization": f"Bearer {settings.token}"},
            timeout=httpx.Timeout(5.0, connect=3.0),
            transport=transport,
            trust_env=False,
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def lease(self) -> dict[str, Any] | None:
        return await self._get(f"leases/{self._lease}")

    async def me(self) -> dict[str, Any] | None:
        return await self._get("me")

    async def home(self) -> dict[str, Any] | None:
        """How full the home is, as the operators measure it."""
        return await self._get("homes/me")

    async def budgets(self, user: str | None) -> list[Any] | None:
        """Those that count for this person: an operator would be told of everybody's without the name."""
        found = await self._ask("budgets", {} if user is None else {"user": user})
        return found if isinstance(found, list) else None

    async def saved(self, call: str, *, saved: int, failed: int) -> None:
        """Answer a last call. Not tried again: a late answer is of no use."""
        body = {"call": call, "saved": saved, "failed": failed}
        try:
            await self._http.put(f"leases/{self._lease}/saved", json=body)
        except httpx.HTTPError:
            return

    async def notices(self) -> AsyncIterator[Event]:
        """Events until cancelled; the stream is opened again whenever it ends. Each time the first event is
        the whole list, so nothing is missed in between."""
        tries = 0
        while True:
            try:
                async with aclosing(self._stream()) as found:
                    async for event in found:
                        tries = 0
                        yield event
            except (httpx.HTTPError, httpx.StreamError):
                # what is missed meanwhile comes with the next list
                tries += 1
            await self._sleep(_PAUSES_S[min(tries, len(_PAUSES_S) - 1)])

    async def _stream(self) -> AsyncGenerator[Event, None]:
        async with self._http.stream(
            "GET",
            f"leases/{self._lease}/notices/events",
            params={"listening": "true"},
            headers={"Accept": "text/event-stream"},
            timeout=httpx.Timeout(5.0, connect=3.0, read=_SILENCE_S),
        ) as answer:
            answer.raise_for_status()
            async for event in events(answer.aiter_lines()):
                yield event

    async def _get(self, path: str) -> dict[str, Any] | None:
        document = await self._ask(path)
        return document if isinstance(document, dict) else None

    async def _ask(self, path: str, query: dict[str, str] | None = None) -> Any:
        try:
            answer = await self._http.get(path, params=query)
            return answer.json() if answer.is_success else None
        except (httpx.HTTPError, ValueError):
            return None
