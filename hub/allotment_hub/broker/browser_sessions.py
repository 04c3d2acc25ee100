"""Sign-ins of browsers: server-side sessions behind a random cookie, and the sealed state of a sign-in."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

__all__ = ["BrowserSession", "BrowserSessions", "PendingSignIn", "SignInSeal", "challenge_of"]

_SESSION_LIFE: Final = timedelta(hours=12)
_SIGN_IN_LIFE: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """`token` is the person's OAuth token at the hub (it dies when they sign out there);
    `csrf` is what our own page sends back in a header."""

    token: str
    csrf: str
    expires: datetime


class BrowserSessions:
    """In memory only: after a restart a browser signs in again without being asked anything."""

    def __init__(self, *, clock: Callable[[], datetime], capacity: int = 10_000) -> None:
        self._clock = clock
        self._capacity = capacity
        self._sessions: OrderedDict[bytes, BrowserSession] = OrderedDict()

    def open(self, token: str) -> str:
        """A new session; returns the cookie's value. The oldest unused one goes when there are too many."""
        cookie = secrets.token_urlsafe(32)
        session = BrowserSession(token, secrets.token_urlsafe(32), self._clock() + _SESSION_LIFE)
        self._sessions[_digest(cookie)] = session
        while len(self._sessions) > self._capacity:
            self._sessions.popitem(last=False)
        return cookie

    def find(self, cookie: str) -> BrowserSession | None:
        key = _digest(cookie)
        session = self._sessions.get(key)
        if session is None:
            return None
        if session.expires <= self._clock():
            del self._sessions[key]
            return None
        self._sessions.move_to_end(key)
        return session

    def close(self, cookie: str) -> None:
        self._sessions.pop(_digest(cookie), None)


def _digest(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode("utf-8", "surrogateescape")).digest()


@dataclass(frozen=True, slots=True)
class PendingSignIn:
    """One OAuth round trip: `state` binds it to this browser, `verifier` is PKCE's, `next` our own path."""

    state: str
    verifier: str
    next: str


class SignInSeal:
    """Keeps pending sign-ins in the browser itself, signed, so that nobody can fill our memory with them."""

    def __init__(self, *, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._key = secrets.token_bytes(32)

    def begin(self, next_path: str) -> tuple[PendingSignIn, str]:
        """A fresh sign-in and its cookie value."""
        pending = PendingSignIn(secrets.token_urlsafe(24), secrets.token_urlsafe(48), next_path)
        expires = (self._clock() + _SIGN_IN_LIFE).timestamp()
        body = json.dumps([pending.state, pending.verifier, pending.next, expires]).encode()
        packed = base64.urlsafe_b64encode(body).decode().rstrip("=")
        return pending, f"{packed}.{self._sign(packed)}"

    def resume(self, sealed: str, state: str) -> PendingSignIn | None:
        """The sign-in in this cookie; None when it is forged, too old, or another one's."""
        packed, _, signature = sealed.partition(".")
        if not hmac.compare_digest(self._sign(packed).encode(), signature.encode("utf-8", "replace")):
            return None
        body = base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4))
        kept_state, verifier, next_path, expires = json.loads(body)
        if self._clock().timestamp() >= expires:
            return None
        if not hmac.compare_digest(str(kept_state).encode(), state.encode("utf-8", "replace")):
            return None
        return PendingSignIn(str(kept_state), str(verifier), str(next_path))

    def _sign(self, packed: str) -> str:
        return hmac.new(self._key, packed.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def challenge_of(verifier: str) -> str:
    """PKCE's S256 challenge (RFC 7636, 4.2)."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode("ascii")).digest()).decode().rstrip("=")
