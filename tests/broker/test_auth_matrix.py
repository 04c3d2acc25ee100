"""Every route with every kind of caller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from allotment_testing.broker_api import API, HUB_TOKEN, BrokerApi, broker_api
from allotment_testing.fake_hub_api import ACCESS, ACT_AS

CALLERS = (
    "nobody", "unknown", "basic", "no-access", "service", "person", "person-with-act-as", "other",
    "admin", "operator", "hub", "act-as",
)  # fmt: skip


def row(text: str) -> dict[str, int]:
    return dict(zip(CALLERS, map(int, text.split()), strict=True))


# fmt: off
#                             nobody unkn basic no-ac svc person p+act other admin oper hub act-as
MATRIX: dict[str, dict[str, int]] = {
    "GET health":              row("200 200 200 200 200 200 200 200 200 200 200 200"),
    "GET openapi.json":        row("200 200 200 200 200 200 200 200 200 200 200 200"),
    "GET me":                  row("401 401 401 403 200 200 200 200 200 200 200 200"),
    "GET flavors":             row("401 401 401 403 403 200 200 200 200 200 403 403"),
    "GET flavors?user=ann":    row("401 401 401 403 403 200 200 403 403 403 200 200"),
    "GET environments":        row("401 401 401 403 403 200 200 200 200 200 403 403"),
    "GET environments?user=ann": row("401 401 401 403 403 200 200 403 403 403 200 200"),
    "GET mounts":              row("401 401 401 403 403 200 200 200 200 200 403 403"),
    "GET mounts?user=ann":     row("401 401 401 403 403 200 200 403 403 403 200 200"),
    "GET datasets":            row("401 401 401 403 403 200 200 200 200 200 403 403"),
    "GET datasets?user=ann":   row("401 401 401 403 403 200 200 403 403 403 200 200"),
    "GET registry/datasets":   row("401 401 401 403 403 403 403 403 200 200 403 403"),
    "POST registry/datasets/NAME/fetch": row("401 401 401 403 403 403 403 403 404 404 403 403"),
    "DELETE registry/datasets/NAME/cached": row("401 401 401 403 403 403 403 403 404 404 403 403"),
    "PUT registry/datasets/NAME": row("401 401 401 403 403 403 403 403 200 200 403 403"),
    "PUT registry/datasets/NAME/pinned": row("401 401 401 403 403 403 403 403 200 200 403 403"),
    "DELETE registry/datasets/NAME": row("401 401 401 403 403 403 403 403 204 204 403 403"),
    "GET leases/LEASE/metrics": row("401 401 401 403 404 200 200 404 200 200 200 200"),
    "GET metrics":             row("401 401 401 403 403 403 403 403 200 200 403 403"),
    "GET metrics/stream":      row("401 401 401 403 403 200 200 200 200 200 403 403"),
    "GET metrics/stream?all=true": row("401 401 401 403 403 403 403 403 200 200 403 403"),
    "GET starts":              row("401 401 401 403 200 200 200 200 200 200 200 200"),
    "GET leases":              row("401 401 401 403 403 200 200 200 200 200 200 200"),
    "GET leases?user=ann":     row("401 401 401 403 403 200 200 403 200 200 200 200"),
    "GET leases/LEASE":        row("401 401 401 403 404 200 200 404 200 200 200 200"),
    "GET leases/LEASE/explain": row("401 401 401 403 404 200 200 404 200 200 200 200"),
    "GET leases/LEASE/events": row("401 401 401 403 404 200 200 404 200 200 200 200"),
    "POST notices":            row("401 401 401 403 403 403 403 403 201 201 403 403"),
    "GET leases/LEASE/notices": row("401 401 401 403 404 200 200 404 200 200 200 200"),
    "POST leases/LEASE/notices": row("401 401 401 403 403 403 403 403 201 201 403 403"),
    "GET leases/LEASE/notices/events": row("401 401 401 403 404 200 200 404 200 200 200 200"),
    "GET leases/LEASE/notices/events?listening=true": row("401 401 401 403 404 200 200 404 403 403 403 403"),
    "POST leases/LEASE/last-call": row("401 401 401 403 403 403 403 403 403 403 200 200"),
    "PUT leases/LEASE/saved":  row("401 401 401 403 404 204 204 404 403 403 403 403"),
    "POST leases/LEASE/stop":  row("401 401 401 403 404 201 201 404 201 201 403 403"),
    "DELETE leases/LEASE/stop": row("401 401 401 403 404 200 200 404 200 200 403 403"),
    "GET images":              row("401 401 401 403 403 403 403 403 200 200 403 403"),
    "POST images":             row("401 401 401 403 403 403 403 403 200 200 403 403"),
    "PUT images/IMAGE/pin":    row("401 401 401 403 403 403 403 403 404 404 403 403"),
    "DELETE images/IMAGE/pin": row("401 401 401 403 403 403 403 403 404 404 403 403"),
    "PUT images/IMAGE/retired": row("401 401 401 403 403 403 403 403 404 404 403 403"),
    "DELETE images/IMAGE/retired": row("401 401 401 403 403 403 403 403 404 404 403 403"),
    "PUT images/IMAGE/removal": row("401 401 401 403 403 403 403 403 404 404 403 403"),
    "DELETE images/IMAGE/removal?gone=true": row("401 401 401 403 403 403 403 403 404 404 403 403"),
    "GET homes":               row("401 401 401 403 403 200 200 200 200 200 200 200"),
    "GET homes?user=ann":      row("401 401 401 403 403 200 200 403 200 200 200 200"),
    "GET homes/me":            row("401 401 401 403 403 200 200 200 200 200 403 403"),
    "POST homes/PERSON/measure": row("401 401 401 403 403 200 200 403 200 200 200 200"),
    "PUT homes/PERSON":        row("401 401 401 403 403 403 403 403 200 200 403 403"),
    "GET saved":               row("401 401 401 403 403 200 200 200 200 200 403 403"),
    "GET saved/NAME":          row("401 401 401 403 403 404 404 404 404 404 403 403"),
    "PUT saved/NAME":          row("401 401 401 403 403 409 409 409 409 409 403 403"),
    "DELETE saved/NAME":       row("401 401 401 403 403 404 404 404 404 404 403 403"),
    "POST saved/NAME/approve": row("401 401 401 403 403 403 403 403 404 404 403 403"),
    "POST saved/NAME/refuse":  row("401 401 401 403 403 403 403 403 404 404 403 403"),
    "GET usage":               row("401 401 401 403 403 200 200 200 200 200 200 200"),
    "GET usage?user=ann":      row("401 401 401 403 403 200 200 403 200 200 200 200"),
    "POST usage/corrections":  row("401 401 401 403 403 403 403 403 404 404 403 403"),
    "POST usage/refunds":      row("401 401 401 403 403 403 403 403 404 404 403 403"),
    "GET budgets":             row("401 401 401 403 403 200 200 200 200 200 403 403"),
    "GET budgets?user=ann":    row("401 401 401 403 403 200 200 403 200 200 200 200"),
    "GET budgets/BUDGET":      row("401 401 401 403 403 404 404 404 404 404 403 403"),
    "POST budgets":            row("401 401 401 403 403 403 403 403 201 201 403 403"),
    "PUT budgets/BUDGET":      row("401 401 401 403 403 403 403 403 404 404 403 403"),
    "DELETE budgets/BUDGET?reason=over": row("401 401 401 403 403 403 403 403 404 404 403 403"),
    "POST budgets/BUDGET/changes": row("401 401 401 403 403 403 403 403 404 404 403 403"),
    "POST budgets/BUDGET/transfers": row("401 401 401 403 403 404 404 404 404 404 403 403"),
    "GET leases/unknown":      row("401 401 401 403 404 404 404 404 404 404 404 404"),
    "GET fleet":               row("401 401 401 403 403 403 403 403 200 200 403 403"),
    "GET disk":                row("401 401 401 403 403 403 403 403 200 200 403 403"),
    "GET events":              row("401 401 401 403 403 403 403 403 403 403 200 200"),
    "POST leases":             row("401 401 401 403 403 403 403 403 403 403 201 201"),
    "PUT leases/LEASE/renew":  row("401 401 401 403 403 403 403 403 403 403 409 409"),
    "PUT leases/LEASE/confirm": row("401 401 401 403 403 403 403 403 403 403 409 409"),
    "PUT leases/LEASE/active": row("401 401 401 403 403 403 403 403 403 403 409 409"),
    "DELETE leases/LEASE":     row("401 401 401 403 404 202 202 404 202 202 200 200"),
}
# fmt: on
BODIES: dict[str, Any] = {
    "POST leases": {"user": "cleo", "server": "", "environment": "minimal", "flavor": "cpu"},
    "PUT leases/LEASE/confirm": {"engine_ref": "x"},
    "PUT leases/LEASE/active": {"devices_seen": []},
    "POST notices": {"sentence": "Good morning."},
    "POST leases/LEASE/notices": {"sentence": "Good morning."},
    "POST leases/LEASE/last-call": {"wait_s": 0},
    "PUT leases/LEASE/saved": {"call": "0" * 32, "saved": 0, "failed": 0},
    "POST leases/LEASE/stop": {"after_s": 3600},
    "PUT homes/PERSON": {"state": "erased"},
    "PUT registry/datasets/NAME": {"source": "https://data.example/iris.csv"},
    "PUT registry/datasets/NAME/pinned": {"pinned": True},
    "POST usage/corrections": {"lease": "unknown", "amount": "-0.5", "reason": "It was slow."},
    "POST usage/refunds": {"lease": "unknown", "amount": "0.5", "reason": "It was slow."},
    "POST budgets": {
        "scope": "group",
        "name": "physics",
        "unit": "money",
        "period": "month",
        "amount": "10",
        "hard": True,
    },
    "PUT budgets/BUDGET": {"amount": "10", "hard": False},
    "POST budgets/BUDGET/changes": {"amount": "-1", "reason": "Less is needed."},
    "POST budgets/BUDGET/transfers": {"to": "0" * 16, "amount": "1", "reason": "They need it."},
    "POST images": {
        "digest": f"sha256:{'a' * 64}",
        "environment": "minimal",
        "reference": "allotment/minimal:1",
        "title": "Minimal",
    },
    "PUT images/IMAGE/retired": {},
    "PUT saved/NAME": {"title": "T", "base": "minimal", "packages": [{"name": "six", "version": "1"}]},
    "POST saved/NAME/approve": {"checksum": "0" * 64},
    "POST saved/NAME/refuse": {"because": "no"},
}


@dataclass
class World:
    api: BrokerApi
    url: str
    headers: dict[str, dict[str, str]]
    lease: str


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with broker_api(tmp_path) as api, api.served() as url:
        hub = api.hub
        for name in ("ann", "ben", "cleo"):
            hub.add_user(name)
        hub.add_user("root", admin=True)
        hub.add_user("olga", groups=("allotment-operators",))
        tokens = {
            "unknown": "0" * 32,
            "no-access": hub.add_token("ann", "read:users!user=ann", "access:services!service=other"),
            "service": hub.add_token("ann", ACCESS, kind="service"),
            "person": hub.add_token("ann", ACCESS),
            "person-with-act-as": hub.add_token("ann", "access:services", ACT_AS),
            "other": hub.add_token("ben", ACCESS),
            "admin": hub.add_token("root", ACCESS),
            "operator": hub.add_token("olga", ACCESS),
            "hub": HUB_TOKEN,
            "act-as": hub.add_token("another-hub", ACCESS, ACT_AS, kind="service"),
        }
        headers = {name: {"Authorization": f"Bearer {token}"} for name, token in tokens.items()}
        headers |= {"nobody": {}, "basic": {"Authorization": "Basic YW5uOmFubg=="}}
        reply: Any = await api.lease("ann")
        yield World(api, url, headers, reply["lease"]["id"])


def address(world: World, route: str) -> tuple[str, str]:
    method, path = route.split(" ")
    path = path.replace("LEASE", world.lease).replace("PERSON", "ann").replace("NAME", "mine")
    path = path.replace("IMAGE", "0" * 12).replace("BUDGET", "0" * 16)
    base = (
        world.url
        if path in ("health", "metrics")
        else world.url.removesuffix("/services/allotment/") + API + "/"
    )
    return method, base + path


async def status(client: httpx.AsyncClient, world: World, route: str, headers: dict[str, str]) -> int:
    """Of streams only the head is read."""
    method, url = address(world, route)
    key = {} if method == "DELETE" else {"Idempotency-Key": "another-attempt"}
    sent = {**headers, **key}
    async with client.stream(method, url, headers=sent, json=BODIES.get(route)) as answer:
        if answer.status_code >= 400:
            assert answer.headers["content-type"] == "application/problem+json"
            problem = httpx.Response(200, content=await answer.aread()).json()
            assert problem["status"] == answer.status_code
            assert problem["type"] == f"urn:allotment:problem:{problem['code']}"
            assert problem["detail"]
            assert problem["next_step"]
        return answer.status_code


@pytest.mark.parametrize("caller", CALLERS)
async def test_matrix(world: World, caller: str) -> None:
    found, expected = {}, {}
    async with httpx.AsyncClient(trust_env=False) as client:
        for route, statuses in MATRIX.items():
            found[route] = await status(client, world, route, world.headers[caller])
            expected[route] = statuses[caller]
    assert found == expected


async def test_the_matrix_is_complete(world: World) -> None:
    async with world.api.client() as client:
        paths = (await client.get("openapi.json")).json()["paths"]
    documented = {
        f"{method.upper()} {path.rsplit('/allotment/', 1)[1].removeprefix('api/v1/')}"
        for path, methods in paths.items()
        for method in methods
    }
    tested = {
        route.partition("?")[0]
        .replace("LEASE", "{lease_id}")
        .replace("PERSON", "{user}")
        .replace("NAME", "{name}")
        .replace("IMAGE", "{image}")
        .replace("BUDGET", "{budget_id}")
        for route in MATRIX
    }
    assert documented <= tested
