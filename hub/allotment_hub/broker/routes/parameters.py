"""Request parameters that several routes share; every one is bounded."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Header, Path, Query

__all__ = [
    "Attempt",
    "AttemptQuery",
    "LeaseId",
    "Limit",
    "RequiredAttempt",
    "RequiredKey",
    "ServerQuery",
    "UserQuery",
]

_KEY: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
_NAME: Final = r"^[^\x00-\x1f\x7f]*$"
_MEANING: Final = "One uuid per start(): an older attempt's writes are refused with stale_attempt"
_WAITER: Final = "The waiter's attempt; for the hub only"

RequiredAttempt = Annotated[str, Header(alias="Idempotency-Key", pattern=_KEY, description=_MEANING)]
Attempt = Annotated[str | None, Header(alias="Idempotency-Key", pattern=_KEY, description=_MEANING)]
RequiredKey = Annotated[
    str,
    Header(
        alias="Idempotency-Key", pattern=_KEY, description="One a change: the same again is the same change"
    ),
]
AttemptQuery = Annotated[str | None, Query(pattern=_KEY, description=_WAITER)]
LeaseId = Annotated[str, Path(max_length=256, description="The lease's id")]
UserQuery = Annotated[
    str | None, Query(min_length=1, max_length=255, pattern=_NAME, description="Whose; for the hub only")
]
ServerQuery = Annotated[
    str | None, Query(max_length=255, pattern=_NAME, description='The server; "" is the default one')
]
Limit = Annotated[int, Query(ge=1, le=200)]
