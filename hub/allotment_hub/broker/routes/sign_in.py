"""Browsers sign in through the hub: OAuth code flow with PKCE (S256) and a state bound to the browser."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import urlencode, urlsplit

from allotment_spawner.core.errors import SignInNeeded
from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response

from allotment_hub.broker.auth import SESSION_COOKIE
from allotment_hub.broker.browser_sessions import challenge_of
from allotment_hub.broker.routes.context import PREFIX, Context, Ctx

__all__ = ["CALLBACK", "router", "safe_next", "to_sign_in"]

CALLBACK: Final = f"{PREFIX}/oauth_callback"
HOME: Final = f"{PREFIX}/"
CLIENT_ID: Final = "service-allotment"
_COOKIE: Final = "allotment-signin-"
_COOKIE_LIFE_S: Final = 600
_Text = Annotated[str, Query(max_length=1024)]

router = APIRouter(include_in_schema=False)


def safe_next(path: str) -> str:
    """`path` when it is a plain address below our own prefix, else our front page."""
    parts = urlsplit(path)
    plain = path.isascii() and path.isprintable() and "\\" not in path and ".." not in path
    if plain and not parts.scheme and not parts.netloc and path.startswith(HOME):
        return path
    return HOME


def to_sign_in(context: Context, request: Request, next_path: str) -> Response:
    """Sends the browser to the hub. The address has no host: the hub lives on the page's own origin, under
    whichever of its names the person used, and cookies stay with that name."""
    pending, sealed = context.seal.begin(safe_next(next_path))
    query = urlencode(
        {
            "client_id": CLIENT_ID,
            "redirect_uri": CALLBACK,
            "response_type": "code",
            "state": pending.state,
            "code_challenge": challenge_of(pending.verifier),
            "code_challenge_method": "S256",
        }
    )
    answer = RedirectResponse(f"/hub/api/oauth2/authorize?{query}", status_code=302)
    answer.set_cookie(
        _COOKIE + pending.state[:8],
        sealed,
        max_age=_COOKIE_LIFE_S,
        path=CALLBACK,
        httponly=True,
        samesite="lax",
        secure=_is_secure(context, request),
    )
    return answer


@router.get("/oauth_callback")
async def oauth_callback(
    context: Ctx, request: Request, code: _Text = "", state: _Text = "", error: _Text = ""
) -> Response:
    """The hub sends the browser back with a code; a code without our own state is refused."""
    cookie = _COOKIE + state[:8]
    pending = context.seal.resume(request.cookies.get(cookie, ""), state)
    if pending is None or error or not code:
        raise SignInNeeded(
            "This sign-in was refused, is too old, or was begun in another browser.",
            "Open the page again and sign in.",
        )
    token = await context.hub.exchange(code=code, verifier=pending.verifier, redirect_uri=CALLBACK)
    if token is None:
        raise SignInNeeded("The hub did not accept this sign-in.", "Open the page again and sign in.")
    await context.auth.by_token(token)
    context.auth.sign_out_browser(request)
    answer = RedirectResponse(safe_next(pending.next), status_code=303)
    answer.delete_cookie(cookie, path=CALLBACK, httponly=True, samesite="lax")
    answer.set_cookie(
        SESSION_COOKIE,
        context.auth.sign_in_browser(token),
        path=HOME,
        httponly=True,
        samesite="lax",
        secure=_is_secure(context, request),
    )
    return answer


def _is_secure(context: Context, request: Request) -> bool:
    """Whether browsers reach us by https, in front of the proxy."""
    forwarded = request.headers.get("x-forwarded-proto", "").split(",")[0].strip()
    return context.public_url.startswith("https:") or forwarded == "https"
