"""Generated requests with real tokens and real ids: never a 5xx, always the described answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from allotment_hub.site import Policies
from allotment_testing.broker_api import HUB_TOKEN, BrokerApi, broker_api
from allotment_testing.fake_hub_api import ACCESS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

STREAMS = {
    "/services/allotment/api/v1/events",
    "/services/allotment/api/v1/leases/{lease_id}/events",
    "/services/allotment/api/v1/leases/{lease_id}/notices/events",
    "/services/allotment/api/v1/metrics/stream",
}
EXAMPLES = 30
BUDGET = {"scope": "user", "unit": "money", "period": "month", "amount": "10000", "hard": True}
POLICIES = Policies(sessions_per_person=50, grant_deadline_s=3600)


class Running:
    """A broker on a loopback port, in a thread with a loop of its own: generated calls are synchronous."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stop = asyncio.Event()
        self._ready: Future[None] = Future()
        self.url = ""
        self.tokens: dict[str, str] = {}
        self.leases: list[tuple[str, str]] = []
        """Ids that exist, with the attempt that made them."""
        self.budgets: list[str] = []
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="broker")

    def __enter__(self) -> Running:
        self._thread.start()
        self._ready.result(timeout=30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(timeout=30)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            async with broker_api(self._folder, policies=POLICIES) as api, api.served() as url:
                await self._seed(api)
                self.url = url
                self._ready.set_result(None)
                await self._stop.wait()
        except Exception as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def _seed(self, api: BrokerApi) -> None:
        api.hub.add_user("ann")
        api.hub.add_user("ben")
        api.hub.add_user("root", admin=True)
        self.tokens = {
            "hub": HUB_TOKEN,
            "person": api.hub.add_token("ann", ACCESS),
            "operator": api.hub.add_token("root", ACCESS),
        }
        for user, server, flavor in (
            ("ann", "", "gpu-full"), ("ann", "work", "gpu-10gb"), ("ben", "", "gpu-full"), ("ben", "b", "cpu")
        ):  # fmt: skip
            attempt = f"{user}-{server or 'd'}"
            reply: Any = await api.lease(user, server=server, flavor=flavor, attempt=attempt)
            self.leases.append((reply["lease"]["id"], attempt))
        async with api.client(self.tokens["operator"]) as root:
            for name in ("physics", "lab", "*"):
                answer = await root.post("budgets", json={**BUDGET, "name": name})
                self.budgets.append(answer.json()["id"])


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with Running(tmp_path_factory.mktemp("broker")) as made:
        yield made


@pytest.fixture(scope="module")
def schema(running: Running) -> Any:
    return schemathesis.openapi.from_url(f"{running.url}api/v1/openapi.json")


def operations(schema: Any) -> list[Any]:
    """All but the streams, whose answers do not end."""
    found = [one.ok() for one in schema.get_all_operations()]
    return [one for one in found if one.path not in STREAMS]


@pytest.mark.parametrize("caller", ["hub", "person", "operator"])
def test_no_request_breaks_the_broker(running: Running, schema: Any, caller: str) -> None:
    tested = operations(schema)
    assert len(tested) >= 12
    answered = {operation.label: attack(running, operation, caller) for operation in tested}
    # Without answers beyond 404 and 422 nothing but the doorman would have been tested.
    if caller == "hub":
        assert all(found - {404, 405, 422} for found in answered.values()), answered


def attack(running: Running, operation: Any, caller: str) -> set[int]:
    """Generated parameters and bodies, with an id, a key and a choice that exist half of the time; returns
    the statuses that were answered."""
    statuses: set[int] = set()
    choices = st.one_of(st.none(), st.sampled_from(["cpu", "gpu-10gb", "gpu-full"]))
    seeded = st.one_of(st.none(), st.sampled_from(running.leases))
    budgets = st.one_of(st.none(), st.sampled_from(running.budgets))

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy(), lease=seeded, flavor=choices, budget=budgets)
    def run(case: Any, lease: tuple[str, str] | None, flavor: str | None, budget: str | None) -> None:
        if flavor is not None and isinstance(case.body, dict) and "flavor" in case.body:
            case.body |= {"flavor": flavor, "environment": "minimal"}
        if budget is not None and "budget_id" in (case.path_parameters or {}):
            case.path_parameters["budget_id"] = budget
            if isinstance(case.body, dict) and "to" in case.body:
                case.body |= {"to": running.budgets[0], "amount": "0.5", "reason": "They need it."}
        headers = {"Authorization": f"Bearer {running.tokens[caller]}"}
        if lease is not None and "lease_id" in (case.path_parameters or {}):
            case.path_parameters["lease_id"], headers["Idempotency-Key"] = lease
        response = case.call(headers=headers)
        statuses.add(response.status_code)
        assert response.status_code < 500, (case.as_curl_command(), response.text)
        case.validate_response(
            response,
            checks=[status_code_conformance, content_type_conformance, response_schema_conformance],
        )

    run()
    return statuses
