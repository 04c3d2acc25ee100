"""RFC 9457 problem+json: the one table from refusal to HTTP status, and the refusals of HTTP itself."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

from allotment_spawner.core import errors
from allotment_spawner.core.errors import Refusal
from allotment_spawner.wire import Problem
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException

from allotment_hub.broker.services.ports import HubUnavailable

__all__ = [
    "PROBLEM_TYPE",
    "STATUS",
    "BadRequest",
    "CrossSite",
    "HubSilent",
    "MethodNotAllowed",
    "NoSuchPath",
    "TooLarge",
    "TooManyStreams",
    "install",
    "problem_of",
    "refusal_of",
    "response_of",
    "status_of",
]

PROBLEM_TYPE: Final = "application/problem+json"
_log = logging.getLogger(__name__)


class BadRequest(Refusal):
    """A body, path, query or header that does not fit the documented shape."""

    code = "bad_request"


class NoSuchPath(Refusal):
    code = "no_such_path"


class MethodNotAllowed(Refusal):
    code = "method_not_allowed"


class TooLarge(Refusal):
    code = "too_large"


class TooManyStreams(Refusal):
    code = "too_many_streams"


class CrossSite(Refusal):
    """A call with the browser's cookie that the dashboard's own page did not make."""

    code = "cross_site"


class HubSilent(Refusal):
    """The wire form of `HubUnavailable`: who calls, or whose server it is, cannot be told now."""

    code = "hub_unavailable"


class _Unexpected(Refusal):
    code = "internal_error"


STATUS: Final[Mapping[type[Refusal], int]] = {
    errors.SignInNeeded: 401,
    errors.BudgetExhausted: 402,
    errors.NotAllowed: 403,
    errors.ChargeNotAllowed: 403,
    errors.FlavorNotAllowed: 403,
    errors.EnvironmentNotAllowed: 403,
    errors.LocalEngineClosed: 403,
    CrossSite: 403,
    errors.AddressNotAllowed: 403,
    errors.NoSuchLease: 404,
    errors.NoSuchBudget: 404,
    errors.NoSuchEntry: 404,
    errors.NoSuchImage: 404,
    errors.UnknownDataset: 404,
    errors.UnknownVersion: 404,
    errors.UnknownFlavor: 404,
    errors.UnknownEnvironment: 404,
    NoSuchPath: 404,
    MethodNotAllowed: 405,
    errors.FlavorUnavailable: 409,
    errors.DatasetUnavailable: 409,
    errors.HomeUnavailable: 409,
    errors.InUse: 409,
    errors.NameTaken: 409,
    errors.LinksNotAllowed: 409,
    errors.EnvironmentUnavailable: 409,
    errors.GrantExpired: 409,
    errors.StaleAttempt: 409,
    errors.WrongState: 409,
    errors.DeviceBusy: 409,
    errors.DeviceMismatch: 409,
    errors.WaitTooLong: 409,
    errors.StartFailed: 409,
    TooLarge: 413,
    errors.BadOptions: 422,
    BadRequest: 422,
    errors.TooManySessions: 429,
    errors.LimitReached: 429,
    errors.TooManySaved: 429,
    TooManyStreams: 429,
    _Unexpected: 500,
    errors.DiskFull: 507,
    errors.BrokerUnavailable: 503,
    errors.EngineUnavailable: 503,
    errors.AgentUnavailable: 503,
    errors.ExporterUnavailable: 503,
    HubSilent: 503,
}
"""The only place where a refusal becomes a status."""


def status_of(refusal: Refusal) -> int:
    """The status of this refusal's class or of its nearest mapped parent; 422 for a nameless refusal."""
    for kind in type(refusal).__mro__:
        if kind in STATUS:
            return STATUS[kind]
    return 422


def problem_of(refusal: Refusal) -> Problem:
    """The wire form; a detail can never overwrite one of the standard members."""
    status = status_of(refusal)
    standard: dict[str, object] = {
        "type": f"urn:allotment:problem:{refusal.code}",
        "title": refusal.code.replace("_", " ").capitalize(),
        "status": status,
        "detail": refusal.sentence,
        "code": refusal.code,
        "next_step": refusal.next_step,
    }
    return Problem.model_validate({**refusal.details, **standard})


def response_of(refusal: Refusal, headers: Mapping[str, str] | None = None) -> JSONResponse:
    status = status_of(refusal)
    extra = dict(headers or {})
    if status == HTTPStatus.UNAUTHORIZED:
        extra.setdefault("WWW-Authenticate", "Bearer")
    if status == HTTPStatus.SERVICE_UNAVAILABLE or isinstance(refusal, TooManyStreams):
        # what a little patience helps; one session too many stays one until another is stopped
        extra.setdefault("Retry-After", "2")
    content = problem_of(refusal).model_dump(mode="json")
    return JSONResponse(content, status_code=status, media_type=PROBLEM_TYPE, headers=extra)


def _of_validation(error: RequestValidationError) -> Refusal:
    """Names where and what, never the value: it may be secret, huge, or not even encodable."""
    found = []
    for item in list(error.errors())[:10]:
        where = ".".join(str(part)[:40] for part in item.get("loc", ()))
        where = where.encode("ascii", "backslashreplace").decode("ascii")
        found.append({"where": where, "what": str(item.get("type", "invalid"))})
    in_body = all(str(one["where"]).startswith("body") for one in found)
    places = ", ".join(f"{one['where']} ({one['what']})" for one in found)
    kind = errors.BadOptions if in_body else BadRequest
    return kind(f"The request does not fit: {places}.", "Correct these fields and try again.", errors=found)


def _of_http(error: HTTPException) -> Refusal | None:
    if error.status_code == HTTPStatus.NOT_FOUND:
        return NoSuchPath("There is nothing at this address.", "See openapi.json for what there is.")
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return MethodNotAllowed("This address does not take that method.", "See the Allow header.")
    if error.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return TooLarge("The request is too large.", "Send less than 64 KiB.")
    if HTTPStatus.BAD_REQUEST <= error.status_code < HTTPStatus.INTERNAL_SERVER_ERROR:
        return BadRequest("The request could not be read.", "Send JSON in UTF-8, as openapi.json says.")
    return None


def refusal_of(error: Exception) -> Refusal:
    """The refusal that a client is told of this error; what nobody expected tells nothing of itself."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, HubUnavailable):
        return HubSilent(str(error), "Try again in a moment; tell an operator if it stays.")
    if isinstance(error, RequestValidationError):
        return _of_validation(error)
    known = _of_http(error) if isinstance(error, HTTPException) else None
    return known or _Unexpected(
        "Allotment made a mistake; it is in the broker's log.", "Try again; tell an operator if it stays."
    )


def install(app: FastAPI, *, page: Callable[[Problem], str], api_prefix: str) -> None:
    """Make every error of `app`, expected or not, a problem: JSON, or outside the API `page`'s HTML for
    a browser."""

    async def answer(request: Request, error: Exception) -> Response:
        refusal = refusal_of(error)
        caller = getattr(request.state, "caller", None)
        if isinstance(refusal, HubSilent) and caller is not None and caller.act_as:
            # To the hub itself "the hub is silent" says nothing; this word makes its client try again.
            refusal = errors.BrokerUnavailable(refusal.sentence, refusal.next_step)
        path = request.url.path
        if isinstance(refusal, _Unexpected):
            _log.error("unexpected error", extra={"path": path[:300]}, exc_info=error)
        if "text/html" in request.headers.get("accept", "") and not path.startswith(api_prefix):
            return HTMLResponse(page(problem_of(refusal)), status_code=status_of(refusal))
        return response_of(refusal, error.headers if isinstance(error, HTTPException) else None)

    for kind in (Refusal, HubUnavailable, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, answer)
