"""Whether a service answers; small blocking requests without proxies, each with a limit."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

__all__ = ["Answer", "Probe", "answers", "http_probe", "request", "socket_probe", "tls_context"]

Probe = Callable[[], bool]


class Answer:
    """Status and body of a reply; status 0 when there was none, with the reason as `problem`."""

    def __init__(self, status: int, body: bytes = b"", problem: str = "") -> None:
        self.status = status
        self.body = body
        self.problem = problem

    @property
    def ok(self) -> bool:
        return HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    def json(self) -> Any:
        """The body; None when it is no JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A token must not follow a redirect to elsewhere."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        del args, kwargs


def request(
    url: str,
    *,
    method: str = "GET",
    token: str | None = None,
    body: Mapping[str, Any] | None = None,
    timeout_s: float = 2.0,
    tls: ssl.SSLContext | None = None,
) -> Answer:
    """One request; never raises for what the network or the server does."""
    headers = {"Accept": "application/json"}
    if token is not None:
        headers["Authorization"] = f"token {token}"
    data = None if body is None else json.dumps(body).encode()
    if data is not None:
        headers["Content-Type"] = "application/json"
    call = urllib.request.Request(url, data=data, method=method, headers=headers)  # noqa: S310 - our own URLs
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), _NoRedirect(), urllib.request.HTTPSHandler(context=tls)
    )
    try:
        with opener.open(call, timeout=timeout_s) as reply:
            return Answer(reply.status, reply.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.read())
    except (OSError, ValueError, http.client.HTTPException) as error:
        return Answer(0, problem=str(getattr(error, "reason", error)))


def answers(url: str, *, token: str | None = None, key: str | None = None) -> bool:
    """Whether a GET gives 2xx and, where a key is named, a JSON object in which it is true."""
    reply = request(url, token=token, timeout_s=1.0)
    if not reply.ok:
        return False
    if key is None:
        return True
    found = reply.json()
    return isinstance(found, dict) and found.get(key) is True


def http_probe(url: str, *, token: str | None = None, key: str | None = None) -> Probe:
    return lambda: answers(url, token=token, key=key)


def socket_probe(path: Path) -> Probe:
    """Whether somebody accepts connections on this unix socket."""

    def probe() -> bool:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(1.0)
            try:
                client.connect(str(path))
            except OSError:
                return False
        return True

    return probe


def tls_context(certificate: str | None) -> ssl.SSLContext | None:
    """Trusts exactly the certificate that we serve ourselves; its name is not that of the loopback."""
    if certificate is None:
        return None
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    return context
