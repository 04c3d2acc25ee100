"""A small synchronous client of the broker's REST interface."""

from __future__ import annotations

import ssl
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, TypeVar
from urllib.parse import quote, urlsplit

import httpx
from httpx_sse import EventSource
from pydantic import BaseModel, TypeAdapter, ValidationError

from allotment.budgets import Budget, BudgetHistory
from allotment.errors import NotAllotment, Refused, Unreachable
from allotment.fleet import Disk, Fleet
from allotment.models import Environment, Explanation, Flavor, Health, Lease, Me, SavedEnvironment
from allotment.money import Usage
from allotment.samples import Samples
from allotment.settings import Settings

__all__ = ["Client"]

Model = TypeVar("Model", bound=BaseModel)
JSON_KINDS = frozenset({"application/json", "application/problem+json"})
_FILE = httpx.Timeout(10.0, read=120.0)
"""The broker writes a file whole before it sends it."""
_STREAM = httpx.Timeout(10.0, read=35.0)
"""The broker sends a comment every 10 s: a stream silent for longer is dead."""


class Client:
    """Every method is one request; raises `Unreachable`, `NotAllotment` or `Refused`.

    `transport` is httpx's own (tests hand in one that needs no network). Use as a context manager.
    """

    def __init__(
        self, settings: Settings, *, timeout_s: float = 10.0, transport: httpx.BaseTransport | None = None
    ) -> None:
        self.settings = settings
        self._http = httpx.Client(
            base_url=settings.url,
            headers={"Authorization": f"Bearer {settings.token}", "Accept": "application/json"},
            timeout=timeout_s,
            transport=transport,
            follow_redirects=False,
            # A proxy meant for the outside world must not see a person's token.
            trust_env=False,
            verify=_trust(settings.certificate) if settings.url.startswith("https:") else False,
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def health(self) -> Health:
        """Whether the broker is ready; needs no token."""
        document = self._get("health", {}, authorise=False, also=frozenset({503}))
        return self._checked(Health, document)

    def hub_version(self) -> str:
        """The version of the hub in front of the broker; needs no token."""
        parts = urlsplit(self.settings.hub_url or self.settings.url)
        base = parts.path.split("/services/")[0].split("/hub")[0].rstrip("/")
        document = self._get(f"{parts.scheme}://{parts.netloc}{base}/hub/api/", {}, authorise=False)
        if not isinstance(document, dict) or "version" not in document:
            raise self._stranger()
        return str(document["version"])

    def me(self) -> Me:
        return self._one(Me, "api/v1/me")

    def flavors(self) -> list[Flavor]:
        return self._many(Flavor, "api/v1/flavors")

    def environments(self) -> list[Environment]:
        return self._many(Environment, "api/v1/environments")

    def leases(
        self, *, user: str | None = None, server: str | None = None, live: bool | None = None, limit: int = 50
    ) -> list[Lease]:
        """Newest first: one's own, or anybody's for operators. `live` False and None both mean all."""
        query = {"user": user, "server": server, "live": "true" if live else None, "limit": str(limit)}
        return self._many(Lease, "api/v1/leases", {k: v for k, v in query.items() if v is not None})

    def lease(self, lease_id: str) -> Lease:
        return self._one(Lease, f"api/v1/leases/{quote(lease_id, safe='')}")

    def explain(self, lease_id: str) -> Explanation:
        return self._one(Explanation, f"api/v1/leases/{quote(lease_id, safe='')}/explain")

    def fleet(self) -> Fleet:
        """Operators only."""
        return self._one(Fleet, "api/v1/fleet")

    def disk(self) -> Disk:
        """Operators only."""
        return self._one(Disk, "api/v1/disk")

    def saved(self) -> list[SavedEnvironment]:
        """One's own and the approved ones; all for operators."""
        return self._many(SavedEnvironment, "api/v1/saved")

    def saved_one(self, name: str) -> SavedEnvironment:
        return self._one(SavedEnvironment, f"api/v1/saved/{quote(name, safe='')}")

    def save(self, name: str, body: Mapping[str, object]) -> SavedEnvironment:
        """Ask for an environment of this name: title, base, base_version, packages."""
        return self._checked(SavedEnvironment, self.send("PUT", f"saved/{quote(name, safe='')}", body))

    def budgets(self, *, user: str | None = None) -> list[Budget]:
        """One's own, of one's groups, and owned ones; all for operators, or those that count for `user`."""
        return self._many(Budget, "api/v1/budgets", {} if user is None else {"user": user})

    def budget(self, budget_id: str) -> BudgetHistory:
        return self._one(BudgetHistory, f"api/v1/budgets/{quote(budget_id, safe='')}")

    def usage(self, query: Mapping[str, str]) -> dict[str, Any]:
        """The report as the broker writes it; `Usage` reads it."""
        document: dict[str, Any] = self._get("api/v1/usage", query)
        self._checked(Usage, document)
        return document

    def usage_file(self, query: Mapping[str, str], target: BinaryIO) -> None:
        """The report as a file (`format` csv or parquet) into `target`."""
        with (
            self._reached(),
            self._http.stream("GET", "api/v1/usage", params=dict(query), timeout=_FILE) as answer,
        ):
            if answer.headers.get("content-type", "").split(";")[0] in JSON_KINDS or not answer.is_success:
                answer.read()
                self._document(answer)
                raise self._stranger()
            target.writelines(answer.iter_bytes())

    def samples(self, *, everybody: bool = False) -> Generator[Samples, None, None]:
        """Each round of samples, the last one first, until the broker ends it: one's own sessions, or
        everybody's for operators. Errors of the connection come as `Unreachable` while it is read, too."""
        query = {"all": "true"} if everybody else {}
        with self._reached():
            headers = {"Accept": "text/event-stream"}
            with self._http.stream(
                "GET", "api/v1/metrics/stream", params=query, headers=headers, timeout=_STREAM
            ) as answer:
                if answer.headers.get("content-type", "").split(";")[0] != "text/event-stream":
                    answer.read()
                    self._document(answer)
                    raise self._stranger()
                for event in EventSource(answer).iter_sse():
                    if event.event == "sample":
                        yield self._round(event.data)

    def _round(self, text: str) -> Samples:
        try:
            return Samples.model_validate_json(text)
        except ValidationError:
            raise self._stranger() from None

    def _one(self, model: type[Model], path: str) -> Model:
        return self._checked(model, self._get(path, {}))

    def _checked(self, model: type[Model], document: object) -> Model:
        try:
            return model.model_validate(document)
        except ValidationError:
            raise self._stranger() from None

    def _many(self, model: type[Model], path: str, query: Mapping[str, str] | None = None) -> list[Model]:
        document = self._get(path, query or {})
        try:
            return TypeAdapter(list[model]).validate_python(document)  # type: ignore[valid-type]
        except ValidationError:
            raise self._stranger() from None

    def _get(
        self,
        path: str,
        query: Mapping[str, str],
        *,
        authorise: bool = True,
        also: frozenset[int] = frozenset(),
    ) -> Any:
        return self._document(self._answer("GET", path, authorise=authorise, params=dict(query)), also)

    def send(
        self, method: str, path: str, body: Mapping[str, object] | None = None, *, key: str | None = None
    ) -> Any:
        """Any request, for what has no method here: the answer's JSON document, None where it has none.
        `path` without api/v1/; `key`: the same change again is done once."""
        response = self._answer(
            method,
            f"api/v1/{path}",
            json=None if body is None else dict(body),
            headers={} if key is None else {"Idempotency-Key": key},
        )
        return None if response.status_code == httpx.codes.NO_CONTENT else self._document(response)

    def _answer(self, method: str, path: str, *, authorise: bool = True, **options: Any) -> httpx.Response:
        with self._reached():
            request = self._http.build_request(method, path, **options)
            if not authorise:
                del request.headers["Authorization"]
            return self._http.send(request)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except httpx.TimeoutException:
            raise Unreachable(
                f"Allotment at {self.settings.url} does not answer in time.", "Try again in a moment."
            ) from None
        except (httpx.TransportError, httpx.InvalidURL) as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise Unreachable(
                    f"The certificate of {self.settings.url} is not trusted here ({error}).",
                    "Name the authority that signed it in SSL_CERT_FILE.",
                ) from None
            raise Unreachable(
                f"Nothing answers at {self.settings.url} ({error}).",
                "Start it with ./deploy/up, or check the address.",
            ) from None

    def _document(self, response: httpx.Response, also: frozenset[int] = frozenset()) -> Any:
        kind = response.headers.get("content-type", "").split(";")[0]
        if response.status_code in {502, 503, 504} and kind not in JSON_KINDS:
            raise Unreachable(
                "The hub answers, but Allotment's broker behind it does not.",
                "It is restarted by itself: try again in a few seconds, then look at its log.",
            )
        if kind not in JSON_KINDS:
            raise self._stranger()
        try:
            document = response.json()
        except ValueError:
            raise self._stranger() from None
        if response.is_success or response.status_code in also:
            return document
        raise self._refusal(response.status_code, document)

    def _refusal(self, status: int, document: Any) -> Exception:
        if not isinstance(document, dict) or "detail" not in document:
            return self._stranger()
        return Refused(
            str(document["detail"]),
            str(document.get("next_step", "")),
            code=str(document.get("code", "refused")),
            status=status,
        )

    def _stranger(self) -> NotAllotment:
        return NotAllotment(
            f"What answers at {self.settings.url} is not an Allotment that this version understands.",
            "Check ALLOTMENT_URL; it ends in /services/allotment/.",
        )


def _trust(certificate: Path | None) -> ssl.SSLContext:
    """Exactly this certificate; without one the system's, so that an institution's own authority is known."""
    if certificate is None:
        return ssl.create_default_context()
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    return context
