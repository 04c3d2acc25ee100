"""The broker's client of the hub's REST API: who a token is, groups, a server's state, stopping one."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import quote

import httpx

from allotment_hub.broker.services.ports import HubUnavailable, ServerState

__all__ = ["HubClient"]

_log = logging.getLogger(__name__)
_GONE = frozenset({404})
_UNKNOWN_TOKEN = frozenset({401, 403})


class HubClient:
    """A `HubView` over HTTP. Methods raise nothing but `HubUnavailable`; connections are kept and reused.

    Not answering, answering with an error, and answering without what our role may read are all
    "unknown", never "absent": a badly configured role must not look like a stopped server.
    """

    def __init__(
        self,
        *,
        api_url: str,
        token: str,
        client_id: str = "service-allotment",
        transport: httpx.AsyncBaseTransport | None = None,
        timeout_s: float = 5.0,
        stop_timeout_s: float = 20.0,
    ) -> None:
        self._token = token
        self._client_id = client_id
        self._stop_timeout = httpx.Timeout(stop_timeout_s, connect=2.0)
        self._http = httpx.AsyncClient(
            base_url=api_url.rstrip("/"),
            transport=transport,
            timeout=httpx.Timeout(timeout_s, connect=2.0),
            limits=httpx.Limits(max_connections=64, max_keepalive_connections=16),
            trust_env=False,  # a proxy variable must never carry tokens away from this host
            follow_redirects=False,
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def groups_of(self, user: str) -> frozenset[str]:
        """Names of the person's groups; empty for a person the hub does not know."""
        model = await self._user(user)
        if model is None:
            return frozenset()
        if not isinstance(model.get("groups"), list):
            _lacks("read:users:groups")
        return frozenset(str(group) for group in model["groups"])

    async def server_state(self, user: str, server: str) -> ServerState:
        """What the hub believes of this server ("" is the default one).

        While the hub checks a server after its own restart it is still taken for running.
        """
        model = await self._user(user)
        if model is None:
            return "absent"
        servers = model.get("servers")
        if not isinstance(servers, dict):
            _lacks("read:servers")
        found = servers.get(server)
        if not isinstance(found, dict):
            return "absent"
        pending = found.get("pending")
        if pending in ("spawn", "stop"):
            return "spawning" if pending == "spawn" else "stopping"
        return "ready" if found.get("ready") or pending else "absent"

    async def stop_server(self, user: str, server: str) -> None:
        """Ask the hub to stop it; returns when the hub took the request. Gone already is no error."""
        path = f"/users/{_segment(user)}/" + (f"servers/{_segment(server)}" if server else "server")
        reply = await self._call("DELETE", path, timeout=self._stop_timeout)
        if reply.status_code not in (202, 204) and reply.status_code not in _GONE:
            _refused(reply)

    async def identify(self, token: str) -> Mapping[str, Any] | None:
        """The hub's model of the token's owner, with `scopes`; None for a token it does not know."""
        reply = await self._call("GET", "/user", token=token)
        if reply.status_code in _UNKNOWN_TOKEN:
            return None
        model = _json_of(reply)
        if not isinstance(model.get("name"), str):
            _refused(reply)
        return model

    async def exchange(self, *, code: str, verifier: str, redirect_uri: str) -> str | None:
        """The browser's token for an OAuth code; None when the hub refuses the code."""
        form = {
            "client_id": self._client_id,
            "client_secret": self._token,
            "grant_type": "authorization_code",
            "code": code,
            "code_verifier": verifier,
            "redirect_uri": redirect_uri,
        }
        reply = await self._call("POST", "/oauth2/token", form=form)
        if 400 <= reply.status_code < 500:
            return None
        token = _json_of(reply).get("access_token")
        return token if isinstance(token, str) else None

    async def _user(self, user: str) -> dict[str, Any] | None:
        reply = await self._call("GET", f"/users/{_segment(user)}")
        return None if reply.status_code in _GONE else _json_of(reply)

    async def _call(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        form: Mapping[str, str] | None = None,
        timeout: httpx.Timeout | None = None,
    ) -> httpx.Response:
        headers = {} if form is not None else {"Authorization": f"Bearer {token or self._token}"}
        wait = timeout if timeout is not None else self._http.timeout
        try:
            return await self._http.request(method, path, headers=headers, data=form, timeout=wait)
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError, OSError) as error:
            # Only the class: a message may hold the address with what a caller sent.
            _unavailable(f"The hub does not answer ({type(error).__name__}).")


def _segment(name: str) -> str:
    """One path segment; "." and ".." would be resolved away by any URL library."""
    if name.strip(".") == "":
        return name.replace(".", "%2E")
    return quote(name, safe="")


def _json_of(reply: httpx.Response) -> dict[str, Any]:
    if reply.status_code != httpx.codes.OK:
        _refused(reply)
    try:
        model = reply.json()
    except (ValueError, RecursionError):
        model = None
    if not isinstance(model, dict):
        _unavailable("The hub answered with something that is no JSON object.")
    return model


def _refused(reply: httpx.Response) -> NoReturn:
    if reply.status_code in _UNKNOWN_TOKEN:
        _log.error("the hub refuses the broker's own token", extra={"status": reply.status_code})
    _unavailable(f"The hub answered {reply.status_code}.")


def _lacks(scope: str) -> NoReturn:
    _log.error("the broker's role at the hub lacks a scope", extra={"scope": scope})
    _unavailable("The hub does not let the broker read what it needs.")


def _unavailable(sentence: str) -> NoReturn:
    raise HubUnavailable(sentence) from None
