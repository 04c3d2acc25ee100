"""The stream of samples and the page for Prometheus: who sees what, and nothing unknown as 0."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from allotment_hub.broker.metrics.monitoring import Monitoring
from allotment_hub.site import MetricSettings, Site
from allotment_spawner.gpu.simulator.state import SimWork
from allotment_testing.broker_api import HUB_TOKEN, BrokerApi, broker_api, until
from allotment_testing.fake_hub_api import ACCESS
from prometheus_client.parser import text_string_to_metric_families

PAGE = "http://broker/services/allotment/metrics"
READ_METRICS = "read:metrics"
GIB = 2**30


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[BrokerApi]:
    async with broker_api(tmp_path, site=Site(metrics=MetricSettings(every_s=300))) as made:
        people(made)
        yield made


def people(api: BrokerApi) -> None:
    api.hub.add_user("ann")
    api.hub.add_user("ben")
    api.hub.add_user("olga", groups=("allotment-operators",))


def monitoring(api: BrokerApi) -> Monitoring:
    found = api.broker.monitoring
    assert isinstance(found, Monitoring)
    return found


async def sampled(api: BrokerApi) -> None:
    """A round of samples now."""
    await monitoring(api).collector.once()


async def page(api: BrokerApi, *scopes: str, user: str = "olga") -> dict[tuple[str, ...], float]:
    """(name, sorted label=value …) -> value, of the page as Prometheus' own parser reads it."""
    token = api.hub.add_token(user, *(scopes or (ACCESS,)))
    async with api.client(token) as client:
        answer = await client.get(PAGE)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return {
        (sample.name, *(f"{key}={value}" for key, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


@asynccontextmanager
async def listening(url: str, token: str, query: str = "") -> AsyncIterator[AsyncIterator[Any]]:
    """The documents of the stream's events."""
    async with (
        httpx.AsyncClient(trust_env=False, timeout=15) as client,
        client.stream(
            "GET", f"{url}api/v1/metrics/stream{query}", headers={"Authorization": f"Bearer {token}"}
        ) as answer,
    ):
        assert answer.status_code == 200, await answer.aread()
        yield documents(answer)


async def documents(answer: httpx.Response) -> AsyncIterator[Any]:
    name = ""
    async for line in answer.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            assert name == "sample"
            yield json.loads(line.removeprefix("data: "))


async def test_people_see_their_own_sessions_and_operators_all(api: BrokerApi) -> None:
    mine, other = await api.session("ann", flavor="gpu-10gb"), await api.session("ben")
    async with api.served() as url:
        async with listening(url, api.hub.add_token("ann", ACCESS)) as rounds:
            found = await anext(rounds)
        async with listening(url, api.hub.add_token("olga", ACCESS), "?all=true") as rounds:
            all_ = await anext(rounds)
        async with listening(url, api.hub.add_token("olga", ACCESS)) as rounds:
            none = await anext(rounds)
    assert [one["lease"] for one in found["leases"]] == [mine]
    assert [one["lease"] for one in all_["leases"]] == [mine, other]
    assert none["leases"] == []
    assert "ben" not in json.dumps(found)
    (one,) = found["leases"]
    assert (one["user"], one["flavor_title"], one["state"], one["simulated"]) == (
        "ann", "10 GB GPU", "active", True,
    )  # fmt: skip
    assert (one["price_per_hour"], one["currency"]) == ("0.400000", "credits")


@pytest.mark.parametrize("name", ["ann", "hub"])
async def test_everybodys_sessions_are_for_operators(api: BrokerApi, name: str) -> None:
    token = HUB_TOKEN if name == "hub" else api.hub.add_token(name, ACCESS)
    async with api.client(token) as client:
        answer = await client.get("metrics/stream?all=true")
    assert (answer.status_code, answer.json()["code"]) == (403, "not_allowed")


async def test_a_slice_shows_its_load_and_what_is_unknown_is_null(api: BrokerApi) -> None:
    await api.session("ann", flavor="gpu-10gb")
    async with api.served() as url, listening(url, api.hub.add_token("ann", ACCESS)) as rounds:
        (before,) = (await anext(rounds))["leases"]
        assert before["devices"][0]["memory_used_bytes"] is None
        assert set(before["workload"].values()) == {None}
        await sampled(api)
        while True:
            (after,) = (await anext(rounds))["leases"]
            if after["devices"][0]["memory_total_bytes"] is not None:
                break
    (device,) = after["devices"]
    assert (device["profile"], device["model"]) == ("1g.10gb", "NVIDIA A100-80GB")
    assert 9 * GIB < device["memory_total_bytes"] < 11 * GIB
    # NVML cannot tell it of slices before Hopper, and power belongs to the whole card
    assert (device["sm_percent"], device["power_w"]) == (None, None)


async def test_what_a_device_did_for_somebody_else_is_not_shown_to_who_gets_it_next(api: BrokerApi) -> None:
    hers = await api.session("ann", flavor="gpu-full")
    card = next(one.uuid for one in (await api.agent.inventory()).gpus if not one.mig)
    pid = api.agent.control.load(card, used_bytes=4 * GIB, work=SimWork(sm_percent=70, power_w=300))
    await sampled(api)
    api.agent.control.unload(pid=pid)
    async with api.client(HUB_TOKEN) as hub:
        await hub.delete(f"leases/{hers}?reason=stopped")
    await until(lambda: not monitoring(api).live.frame().leases)
    his = await api.session("ben", flavor="gpu-full")
    async with api.served() as url, listening(url, api.hub.add_token("ben", ACCESS)) as rounds:
        (session,) = (await anext(rounds))["leases"]
        (device,) = session["devices"]
        assert (device["uuid"], device["sm_percent"], device["power_w"]) == (card, None, None)
        power = {
            key: value for key, value in (await page(api)).items() if key[0] == "allotment_gpu_power_watts"
        }
        assert [key for key in power if f"lease={his}" in key] == []
        assert [value for key, value in power.items() if f"device={card}" in key] == [300]
        await sampled(api)
        while True:
            (session,) = (await anext(rounds))["leases"]
            if session["devices"][0]["memory_used_bytes"] is not None:
                break
    assert session["devices"][0]["sm_percent"] == 0
    assert any(f"lease={his}" in key for key in await page(api) if key[0] == "allotment_gpu_power_watts")


async def test_ten_listeners_cost_as_much_as_one(api: BrokerApi) -> None:
    await api.session("ann", flavor="gpu-10gb")
    token = api.hub.add_token("ann", ACCESS)
    watched = monitoring(api).live
    async with api.served() as url, AsyncExitStack() as open_:
        streams = [await open_.enter_async_context(listening(url, token)) for _ in range(10)]
        first = [await anext(rounds) for rounds in streams]
        assert watched.listeners == 10
        assert len({json.dumps(one) for one in first}) == 1
        before = watched.computed
        await sampled(api)
        second = [await anext(rounds) for rounds in streams]
        assert watched.computed == before + 1
        assert watched.frame().looked_at == 1
        assert len({json.dumps(one) for one in second}) == 1
        assert second[0]["at"] > first[0]["at"]
    await until(lambda: watched.listeners == 0)
    computed = watched.computed
    await sampled(api)
    await asyncio.sleep(0)
    assert watched.computed == computed  # nobody listens: nothing is worked out


async def test_the_page_is_for_operators_and_for_tokens_made_for_it(api: BrokerApi) -> None:
    assert (await page(api))["allotment_agent_up",] == 1
    # the hub's own scope for its metrics suffices, of whomever, and is good for nothing else
    scraper = api.hub.add_token("ann", READ_METRICS)
    async with api.client(scraper) as client:
        assert (await client.get(PAGE)).status_code == 200
        assert (await client.get("leases")).status_code == 403
    for token, status in (
        (api.hub.add_token("ann", ACCESS), 403),
        (HUB_TOKEN, 403),
        ("wrong", 401),
        (None, 401),
    ):
        async with api.client(token) as client:
            assert (await client.get(PAGE)).status_code == status


async def test_the_page_waits_for_the_first_comparison(api: BrokerApi) -> None:
    api.context.ready = False
    async with api.client(api.hub.add_token("olga", ACCESS)) as client:
        answer = await client.get(PAGE)
    assert (answer.status_code, answer.json()["code"]) == (503, "broker_unavailable")


async def test_the_page_tells_of_devices_queue_and_starts(api: BrokerApi) -> None:
    lease = await api.session("ann", flavor="gpu-full")
    await api.lease("ben", flavor="gpu-full")
    async with api.client(HUB_TOKEN) as hub:
        body = {"user": "ben", "server": "x", "environment": "minimal", "flavor": "staff"}
        refused = await hub.post("leases", json=body, headers={"Idempotency-Key": "a"})
    gpu = next(one for one in (await api.agent.inventory()).gpus if not one.mig)
    api.agent.control.load(gpu.uuid, used_bytes=4 * GIB, work=SimWork(sm_percent=70, power_w=300))
    await sampled(api)
    found = await page(api)
    labels = (f"device={gpu.uuid}", "flavor=gpu-full", f"gpu={gpu.uuid}", f"lease={lease}", "profile=")
    assert found["allotment_gpu_sm_utilization_ratio", *labels] == 0.7
    assert found["allotment_gpu_memory_used_bytes", *labels] >= 4 * GIB
    assert found["allotment_gpu_power_watts", *labels] == 300
    assert found["allotment_leases", "flavor=gpu-full", "state=active"] == 1
    assert found["allotment_leases", "flavor=cpu", "state=active"] == 0
    assert found["allotment_queue_length",] == 1
    assert found["allotment_queue_oldest_wait_seconds",] > 0
    assert found["allotment_starts_granted_total", "flavor=gpu-full"] == 1
    assert found["allotment_queue_wait_seconds_count", "flavor=gpu-full"] == 1
    assert found["allotment_session_start_seconds_count", "flavor=gpu-full"] == 1
    assert found["allotment_starts_refused_total", f"code={refused.json()['code']}"] == 1
    assert found["allotment_flavor_free", "flavor=gpu-full"] == 0
    assert found["allotment_gpu_healthy", f"gpu={gpu.uuid}"] == 1
    assert found["allotment_session_price", "currency=credits", "environment=minimal", "flavor=gpu-full",
                 f"lease={lease}"] == 3.2  # fmt: skip
    assert not [key for key in found if "ann" in key[1:] or any("user=" in part for part in key)]


async def test_what_is_unknown_is_absent_from_the_page(api: BrokerApi) -> None:
    await api.session("ann", flavor="gpu-10gb")
    api.agent.stop_answering()
    await sampled(api)
    found = await page(api)
    assert not [key for key in found if key[0].startswith(("allotment_gpu_sm", "allotment_gpu_memory"))]
    assert not [key for key in found if key[0].startswith("allotment_session_cpu")]
    assert found["allotment_collector_missed_total", "source=agent"] == 1


async def test_cost_budget_and_end_are_in_the_stream(api: BrokerApi) -> None:
    lease = await api.session("ann", flavor="gpu-full")
    token = api.hub.add_token("ann", ACCESS)
    budgets = [
        {"scope": "user", "name": "*", "unit": "money", "amount": "20", "period": "month", "hard": True},
        {"scope": "user", "name": "*", "unit": "gpu_hours", "amount": "1", "period": "month", "hard": False},
    ]
    async with api.client(api.hub.add_token("olga", ACCESS)) as operator:
        for body in budgets:
            assert (await operator.post("budgets", json=body)).status_code == 201
        stop = await operator.post(f"leases/{lease}/stop", json={"after_s": 3600})
    async with api.served() as url, listening(url, token) as rounds:
        await sampled(api)
        async for found in rounds:
            (one,) = found["leases"]
            if one["budget"] is not None and one["ends_at"] is not None:
                break
    budget = one["budget"]
    assert (budget["hard"], budget["unit"], budget["limit"]) == (True, "money", "20")
    # what is left may be a few seconds older than the cost
    assert 0 < 20 - Decimal(budget["left"]) <= Decimal(one["cost"])
    assert one["ends_at"] == stop.json()["stop_at"]


async def test_people_are_named_only_where_operators_asked_for_it(tmp_path: Path) -> None:
    site = Site(metrics=MetricSettings(every_s=300, name_people=True))
    odd = 'ann "x\\ }'
    async with broker_api(tmp_path, site=site) as api:
        people(api)
        api.hub.add_user(odd)
        await api.session(odd)
        found = await page(api)
    assert [key for key in found if key[0] == "allotment_session_cost" and f"user={odd}" in key]


async def test_rounds_that_follow_each_other_at_once_lose_no_error_of_a_gpu(api: BrokerApi) -> None:
    card = (await api.agent.inventory()).gpus[0].uuid
    await sampled(api)
    for xid in (31, 43, 31):
        api.agent.control.fault(card, xid)
        await sampled(api)
    await asyncio.sleep(0)
    found = await page(api)
    assert found["allotment_gpu_xid_errors_total", f"gpu={card}"] == 3
    assert found["allotment_gpu_xid_errors_by_number_total", f"gpu={card}", "xid=31"] == 2


async def test_ends_and_sums_of_the_ledger_are_counted(api: BrokerApi) -> None:
    lease = await api.session("ann", flavor="gpu-full")
    async with api.client(HUB_TOKEN) as hub:
        await hub.delete(f"leases/{lease}?reason=stopped")
    await until(lambda: not api.engine.workloads and not monitoring(api).live.frame().leases)
    found = await page(api)
    assert found["allotment_leases_ended_total", "flavor=gpu-full", "reason=stopped"] == 1
    again = await page(api)
    key = ("allotment_ledger_amount", "currency=credits", "kind=usage")
    assert again[key] == found[key] > 0
    assert again["allotment_ledger_entries_total", *key[1:]] == 1
    assert again["allotment_outages_total", "what=engine"] == 0
