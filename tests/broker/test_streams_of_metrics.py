"""An open stream of samples ends when whoever listens may not see it any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from allotment_hub.broker.metrics.monitoring import Monitoring
from allotment_hub.broker.routes import live
from allotment_hub.site import MetricSettings, Site
from allotment_testing.broker_api import BrokerApi, broker_api
from allotment_testing.fake_hub_api import ACCESS


@pytest.fixture
async def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BrokerApi]:
    monkeypatch.setattr(live, "AGAIN_S", 0.0)
    async with broker_api(tmp_path, site=Site(metrics=MetricSettings(every_s=300))) as made:
        made.hub.add_user("ann")
        made.hub.add_user("olga", groups=("allotment-operators",))
        yield made


async def rounds(api: BrokerApi) -> None:
    """One after the other, until cancelled."""
    monitoring = api.broker.monitoring
    assert isinstance(monitoring, Monitoring)
    while True:
        await monitoring.collector.once()
        await asyncio.sleep(0.05)


async def heard(api: BrokerApi, token: str, query: str, *, meanwhile: str) -> int:
    """Events until the stream ended; after the first two `meanwhile` happens at the hub."""
    count = 0
    async with api.served() as url, httpx.AsyncClient(trust_env=False, timeout=20) as client:
        sampling = asyncio.ensure_future(rounds(api))
        headers = {"Authorization": f"Bearer {token}"}
        async with client.stream("GET", f"{url}api/v1/metrics/stream{query}", headers=headers) as answer:
            async for line in answer.aiter_lines():
                count += line.startswith("event: sample")
                if count == 2 and line == "":
                    happens(api, token, meanwhile)
                if count == 6:
                    break
        sampling.cancel()
    return count


def happens(api: BrokerApi, token: str, what: str) -> None:
    if what == "the token is revoked":
        api.hub.tokens.pop(token, None)
    elif what == "she is no operator any more":
        api.hub.add_user("olga")
    elif what == "the hub is away":
        api.hub.app.routes.clear()
    api.context.auth.forget_answers()


@pytest.mark.parametrize(
    ("who", "query", "meanwhile"),
    [
        ("ann", "", "the token is revoked"),
        ("olga", "?all=true", "she is no operator any more"),
    ],
)
async def test_a_stream_ends_with_the_right_to_see_it(
    api: BrokerApi, who: str, query: str, meanwhile: str
) -> None:
    assert await heard(api, api.hub.add_token(who, ACCESS), query, meanwhile=meanwhile) < 5


@pytest.mark.parametrize("meanwhile", ["she is no operator any more", "the hub is away"])
async def test_a_stream_of_ones_own_goes_on(api: BrokerApi, meanwhile: str) -> None:
    """Also while the hub cannot be asked: unknown is not refused."""
    assert await heard(api, api.hub.add_token("olga", ACCESS), "", meanwhile=meanwhile) == 6
