"""Authenticates each request: bearer token or the dashboard's cookie, with its cross-site rules."""

from __future__ import annotations

import hmac
from typing import Final

from allotment_spawner.core.errors import NotAllowed, SignInNeeded
from starlette.requests import Request

from allotment_hub.broker.browser_sessions import BrowserSession, BrowserSessions
from allotment_hub.broker.identity import Caller, caller_of, may_read_metrics
from allotment_hub.broker.problems import CrossSite
from allotment_hub.broker.token_answers import TokenAnswers

__all__ = ["CSRF_HEADER", "SESSION_COOKIE", "Auth"]

SESSION_COOKIE: Final = "allotment-session"
CSRF_HEADER: Final = "X-Allotment-CSRF"
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_MAX_TOKEN: Final = 512
_HUB: Final = Caller(name="hub", kind="service", act_as=True)


class Auth:
    """`caller(request)` raises `SignInNeeded`, `NotAllowed`, `CrossSite` or `HubUnavailable`.

    The hub's own token is compared here and never asked about: the hub uses it before it listens.
    """

    def __init__(
        self,
        *,
        hub_token: str,
        answers: TokenAnswers,
        sessions: BrowserSessions,
        operators_group: str,
    ) -> None:
        if len(hub_token) < 16:
            raise ValueError("the hub-to-broker secret is missing or too short")
        self._hub_token = hub_token.encode()
        self._answers = answers
        self._sessions = sessions
        self._operators_group = operators_group

    async def caller(self, request: Request) -> Caller:
        """Who calls an API route. A token in the header wins over a cookie."""
        if "authorization" in request.headers:
            return await self.by_token(_bearer(request.headers["authorization"]))
        session = self.session(request)
        if session is None:
            raise _sign_in("There is neither a token nor a sign-in with this request.")
        _check_same_page(request, session)
        return await self.by_token(session.token)

    async def may_scrape(self, request: Request) -> None:
        """Raises `NotAllowed` unless an operator calls, or a token that was made for monitoring."""
        if "authorization" in request.headers:
            token = _bearer(request.headers["authorization"])
            model = None if self._is_hubs(token) else await self._answers.answer(token)
            if model is not None and may_read_metrics(model):
                return
        caller = await self.caller(request)
        request.state.caller = caller
        if not caller.operator:
            raise NotAllowed(
                "Only operators may read the metrics.",
                "Use an operator's token, or one with the scope read:metrics.",
            )

    def _is_hubs(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self._hub_token)

    async def by_token(self, token: str) -> Caller:
        """The owner of this token; asks the hub unless it is the hub's own or was asked just now."""
        if self._is_hubs(token):
            return _HUB
        model = await self._answers.answer(token)
        if model is None:
            raise _sign_in("The hub does not know this token; it may have expired.")
        return caller_of(model, operators_group=self._operators_group)

    def session(self, request: Request) -> BrowserSession | None:
        """The browser's session, unchecked for cross-site use."""
        cookie = request.cookies.get(SESSION_COOKIE)
        return self._sessions.find(cookie) if cookie else None

    def forget_answers(self) -> None:
        """Ask the hub again about every token."""
        self._answers.forget()

    def sign_in_browser(self, token: str) -> str:
        return self._sessions.open(token)

    def sign_out_browser(self, request: Request) -> None:
        self._sessions.close(request.cookies.get(SESSION_COOKIE, ""))


def _bearer(header: str) -> str:
    """The token of `Bearer X` or, as JupyterHub's own clients write it, `token X`."""
    scheme, _, token = header.partition(" ")
    token = token.strip()
    if scheme.lower() not in ("bearer", "token") or not token:
        raise _sign_in("The Authorization header holds no bearer token.")
    if len(token) > _MAX_TOKEN or not token.isascii() or not token.isprintable():
        raise _sign_in("The hub does not know this token; it may have expired.")
    return token


def _check_same_page(request: Request, session: BrowserSession) -> None:
    """Refuse a cookie that another page makes the browser send.

    People's servers live on our origin, so SameSite and Origin do not keep their scripts away from an
    operator's cookie. Our page proves itself by the token it was rendered with; it cannot be fetched by
    script (see the page's route), framed, or reached through a window handle. Typing an address of the
    API into the browser is harmless: what it shows is out of any script's reach.
    """
    site = request.headers.get("sec-fetch-site")
    sent = request.headers.get(CSRF_HEADER)
    if sent is not None and site in (None, "same-origin"):
        if hmac.compare_digest(sent.encode("utf-8", "replace"), session.csrf.encode()):
            return
    elif request.method in _SAFE and request.headers.get("sec-fetch-dest") == "document":
        return
    raise CrossSite(
        "This was not sent by Allotment's own page.", "Reload the page and try again, or use a token."
    )


def _sign_in(sentence: str) -> SignInNeeded:
    return SignInNeeded(sentence, "Sign in at the hub, or send a token as Authorization: Bearer …")
