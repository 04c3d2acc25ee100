"""The part of JupyterHub 6's API that the broker uses, with the same shapes and statuses, in memory."""

from __future__ import annotations

import base64
import hashlib
import secrets
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, urlencode

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

__all__ = ["ACCESS", "ACT_AS", "FakeHubApi", "FakeUser", "HubThatAnswers500", "HubThatIsSilent"]

ACCESS: Final = "access:services!service=allotment"
ACT_AS: Final = "custom:allotment:act-as"
CALLBACK: Final = "/services/allotment/oauth_callback"


@dataclass(slots=True)
class FakeUser:
    """`servers`: name -> (pending, ready), as the hub's own spawners know them."""

    name: str
    admin: bool = False
    groups: tuple[str, ...] = ()
    servers: dict[str, tuple[str | None, bool]] = field(default_factory=dict)


class FakeHubApi:
    """`transport` plugs into an `httpx.AsyncClient`; `asked` counts the calls by path."""

    def __init__(self, *, service_token: str) -> None:
        self.service_token = service_token
        self.users: dict[str, FakeUser] = {}
        self.tokens: dict[str, tuple[str, str, tuple[str, ...]]] = {}
        self.codes: dict[str, tuple[str, str]] = {}
        self.signed_in_as: str | None = None
        self.asked: list[str] = []
        self.stopped: list[tuple[str, str]] = []
        self.app = Starlette(
            routes=[
                Route("/hub/api/user", self._self),
                Route("/hub/api/users/{name}", self._user),
                Route("/hub/api/users/{name}/server", self._stop, methods=["DELETE"]),
                Route("/hub/api/users/{name}/servers/{server}", self._stop, methods=["DELETE"]),
                Route("/hub/api/oauth2/authorize", self._authorize),
                Route("/hub/api/oauth2/token", self._token, methods=["POST"]),
            ]
        )

    @property
    def transport(self) -> httpx.AsyncBaseTransport:
        return httpx.ASGITransport(app=self.app)

    def add_user(self, name: str, *, admin: bool = False, groups: tuple[str, ...] = ()) -> FakeUser:
        self.users[name] = FakeUser(name, admin, groups)
        return self.users[name]

    def add_token(self, owner: str, *scopes: str, kind: str = "user") -> str:
        """A token of a person (or service) with exactly these scopes."""
        token = secrets.token_hex(16)
        self.tokens[token] = (kind, owner, scopes)
        return token

    async def _self(self, request: Request) -> Response:
        self.asked.append("user")
        token = request.headers.get("authorization", "").partition(" ")[2]
        if token not in self.tokens:
            return _error(403, "Forbidden")
        kind, name, scopes = self.tokens[token]
        model: dict[str, Any] = {"kind": kind, "name": name, "admin": False}
        if kind == "user":
            user = self.users[name]
            model |= {"admin": user.admin, "groups": list(user.groups), "user_info": {}}
        return JSONResponse(model | {"token_id": "a1", "session_id": None, "scopes": sorted(scopes)})

    def _may(self, request: Request) -> bool:
        return request.headers.get("authorization") == f"Bearer {self.service_token}"

    async def _user(self, request: Request) -> Response:
        self.asked.append("users")
        if not self._may(request):
            return _error(403, "Missing or invalid credentials.")
        user = self.users.get(request.path_params["name"])
        if user is None:
            return _error(404, "Not Found")
        servers = {name: _server(user, name) for name in user.servers}
        model = {"kind": "user", "name": user.name, "admin": user.admin, "groups": list(user.groups)}
        return JSONResponse(model | {"servers": servers, "user_info": {}})

    async def _stop(self, request: Request) -> Response:
        if not self._may(request):
            return _error(403, "Missing or invalid credentials.")
        name, server = request.path_params["name"], request.path_params.get("server", "")
        user = self.users.get(name)
        if user is None or (server and server not in user.servers):
            return _error(404, f"{name} has no server named '{server}'")
        self.stopped.append((name, server))
        user.servers.pop(server, None)
        return Response(status_code=204)

    async def _authorize(self, request: Request) -> Response:
        query = request.query_params
        if query.get("client_id") != "service-allotment" or query.get("redirect_uri") != CALLBACK:
            return _error(400, "Mismatching redirect URI.")
        if query.get("code_challenge_method") != "S256" or not query.get("code_challenge"):
            return _error(400, "Code challenge required.")
        if self.signed_in_as is None:
            return RedirectResponse("/hub/login?" + urlencode({"next": str(request.url)}), 302)
        code = secrets.token_hex(8)
        self.codes[code] = (self.signed_in_as, query["code_challenge"])
        return RedirectResponse(CALLBACK + "?" + urlencode({"code": code, "state": query["state"]}), 302)

    async def _token(self, request: Request) -> Response:
        form = {key: values[0] for key, values in parse_qs((await request.body()).decode()).items()}
        known = self.codes.pop(form.get("code", ""), None)
        if form.get("client_secret") != self.service_token or form.get("redirect_uri") != CALLBACK:
            return JSONResponse({"error": "invalid_client"}, 401)
        challenge = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if known is None or base64.urlsafe_b64encode(challenge).decode().rstrip("=") != known[1]:
            return JSONResponse({"error": "invalid_grant"}, 400)
        scopes = (ACCESS, f"read:users:name!user={known[0]}", f"read:users:groups!user={known[0]}")
        token = self.add_token(known[0], *scopes)
        return JSONResponse({"access_token": token, "expires_in": 1209600, "token_type": "Bearer"})


def _server(user: FakeUser, name: str) -> dict[str, Any]:
    pending, ready = user.servers[name]
    return {
        "name": name,
        "full_name": f"{user.name}/{name}",
        "last_activity": None,
        "started": None,
        "pending": pending,
        "ready": ready,
        "stopped": False,
        "url": f"/user/{user.name}/{name}",
        "user_options": {},
    }


def _error(status: int, message: str) -> Response:
    return JSONResponse({"status": status, "message": message}, status)


class HubThatIsSilent(httpx.AsyncBaseTransport):
    """Nobody listens."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("connection refused", request=request)


class HubThatAnswers500(httpx.AsyncBaseTransport):
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(500, json={"status": 500, "message": "Internal Server Error"}, request=request)
