"""ASGI middleware: bounded bodies, security headers, one log line a request."""

from __future__ import annotations

import logging
import time
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from allotment_hub.broker.problems import TooLarge, response_of

__all__ = ["MAX_BODY_BYTES", "AccessLog", "BoundedBody", "SecurityHeaders"]

MAX_BODY_BYTES: Final = 64 * 1024
_PAGE_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_DATA_POLICY: Final = "default-src 'none'; frame-ancestors 'none'"
_log = logging.getLogger("allotment.access")


class _Disconnected:
    """The client went before its body was whole."""


class BoundedBody:
    """Answers 413 as soon as more than `limit` bytes were announced or came."""

    def __init__(self, app: ASGIApp, *, limit: int = MAX_BODY_BYTES) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if not announced.isdigit() or len(announced) > 18 or int(announced) > self._limit:
            await _too_large(self._limit)(scope, receive, send)
            return
        body = await self._read(receive)
        if body is None:
            await _too_large(self._limit)(scope, receive, send)
            return
        if isinstance(body, _Disconnected):
            return
        replayed = False

        async def replay() -> Message:
            nonlocal replayed
            if replayed:
                return await receive()
            replayed = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, send)

    async def _read(self, receive: Receive) -> bytes | _Disconnected | None:
        """The whole body (it is small by rule), or None when it is too large."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return _Disconnected()  # half a body must never be taken for a whole one
            body += message.get("body", b"")
            if len(body) > self._limit:
                return None
            if not message.get("more_body", False):
                return bytes(body)


def _too_large(limit: int) -> ASGIApp:
    refusal = TooLarge("The request is too large.", f"Send at most {limit // 1024} KiB.", limit_bytes=limit)
    return response_of(refusal, {"Connection": "close"})


class SecurityHeaders:
    """Nothing of ours may be framed, sniffed, cached or run foreign scripts."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                _harden(MutableHeaders(scope=message))
            await send(message)

        await self._app(scope, receive, send_with_headers)


def _harden(headers: MutableHeaders) -> None:
    page = headers.get("content-type", "").startswith("text/html")
    headers["Content-Security-Policy"] = _PAGE_POLICY if page else _DATA_POLICY
    headers["X-Content-Type-Options"] = "nosniff"
    headers["X-Frame-Options"] = "DENY"
    headers["Referrer-Policy"] = "same-origin"
    # People's servers share our origin: no window of theirs may keep a handle on ours. `same-origin` would
    # leave it to one that sends the same header.
    headers["Cross-Origin-Opener-Policy"] = "noopener-allow-popups"
    headers["Cross-Origin-Resource-Policy"] = "same-origin"
    headers.setdefault("Cache-Control", "no-store")


class AccessLog:
    """Method, path without query, status and duration; no header, cookie, query or body is logged."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            caller = scope.get("state", {}).get("caller")
            fields = {
                "method": scope["method"],
                "path": scope["path"][:300],
                "status": status,
                "ms": round((time.perf_counter() - began) * 1000, 1),
                "caller": None if caller is None else f"{caller.kind}:{caller.name}",
            }
            polled = scope["path"].endswith("/health") and status < 400
            _log.log(logging.DEBUG if polled else logging.INFO, "request", extra=fields)
