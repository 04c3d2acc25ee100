"""Who opens a page with a browser; without a valid sign-in the browser is sent to the hub first."""

from __future__ import annotations

from allotment_spawner.core.errors import BrokerUnavailable, NotAllowed, SignInNeeded
from fastapi import Request
from fastapi.responses import Response

from allotment_hub.broker.browser_sessions import BrowserSession
from allotment_hub.broker.identity import Caller
from allotment_hub.broker.problems import CrossSite
from allotment_hub.broker.routes.context import Context
from allotment_hub.broker.routes.sign_in import to_sign_in

__all__ = ["person_of", "visitor"]


async def visitor(context: Context, request: Request, here: str) -> tuple[BrowserSession, Caller] | Response:
    """The browser's session and its person; or the answer that leads to the hub and back `here`."""
    # Only a navigation gets a page: a script of somebody's server on our origin must not read what it
    # holds. (Browsers send this header to https and loopback addresses.)
    if request.headers.get("sec-fetch-dest", "document") != "document":
        raise CrossSite("This page cannot be fetched or framed.", "Open it in the browser.")
    session = context.auth.session(request)
    if session is None:
        return to_sign_in(context, request, here)
    try:
        caller = await context.auth.by_token(session.token)
    except SignInNeeded:
        context.auth.sign_out_browser(request)
        return to_sign_in(context, request, here)
    request.state.caller = caller
    if not context.ready:
        raise BrokerUnavailable("Allotment is just starting.", "Reload the page in a few seconds.")
    return session, caller


def person_of(caller: Caller) -> str:
    """Raises `NotAllowed` for a service."""
    if caller.person is None:
        raise NotAllowed("The page is for people.", "A service uses the API.")
    return caller.person
