"""Server-sent events over a real connection: order, keep-alives, limits, and their end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from allotment_hub.broker.identity import Caller
from allotment_hub.broker.problems import TooManyStreams
from allotment_hub.broker.streams import Streams
from allotment_testing.broker_api import HUB_TOKEN, BrokerApi, broker_api, until
from allotment_testing.fake_hub_api import ACCESS

ANN = Caller(name="ann", kind="person")


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[BrokerApi]:
    async with broker_api(tmp_path, gpus="sim:1xA100-80GB:whole") as made:
        made.hub.add_user("ann")
        made.hub.add_user("ben")
        yield made


@asynccontextmanager
async def stream(url: str, token: str) -> AsyncIterator[httpx.Response]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx.AsyncClient(trust_env=False, timeout=15) as client,
        client.stream("GET", url, headers=headers) as answer,
    ):
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield answer


async def events(answer: httpx.Response) -> AsyncIterator[tuple[str, Any]]:
    name = ""
    async for line in answer.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


async def test_a_waiter_sees_its_place_and_its_grant(api: BrokerApi) -> None:
    first: Any = await api.lease("ann", flavor="gpu-full")
    assert first["lease"]["state"] == "granted"
    waiting: Any = await api.lease("ben", flavor="gpu-full", attempt="bens-attempt")
    assert (waiting["lease"]["state"], waiting["lease"]["place"]) == ("queued", 1)
    async with api.served() as url:
        address = f"{url}api/v1/leases/{waiting['lease']['id']}/events"
        async with stream(f"{address}?attempt=bens-attempt", HUB_TOKEN) as answer:
            seen = events(answer)
            name, data = await anext(seen)
            assert (name, data["type"], data["reply"]["lease"]["place"]) == ("queued", "queued", 1)
            async with api.client(HUB_TOKEN) as hub:
                await hub.delete(f"leases/{first['lease']['id']}?reason=cancelled")
            rest = [one async for one in seen]
    assert {name for name, _ in rest[:-1]} <= {"queued"}
    assert rest[-1][0] == "granted"
    assert rest[-1][1]["reply"]["launch"]["devices"]


async def test_people_see_no_launch(api: BrokerApi) -> None:
    reply: Any = await api.lease("ann", flavor="gpu-full")
    async with api.served() as url:
        address = f"{url}api/v1/leases/{reply['lease']['id']}/events"
        async with stream(address, api.hub.add_token("ann", ACCESS)) as answer:
            name, data = await anext(events(answer))
    assert name == "granted"
    assert data["reply"]["launch"] is None
    assert "image" not in json.dumps(data)


async def test_a_refusal_before_the_first_event_keeps_its_status(api: BrokerApi) -> None:
    reply: Any = await api.lease("ann", flavor="gpu-full")
    async with api.client(HUB_TOKEN) as hub:
        answer = await hub.get(f"leases/{reply['lease']['id']}/events?attempt=older")
    assert (answer.status_code, answer.json()["code"]) == (409, "stale_attempt")


async def test_changes_reach_the_hub_and_the_page(api: BrokerApi) -> None:
    async with api.served() as url, stream(f"{url}api/v1/events", HUB_TOKEN) as answer:
        seen = events(answer)
        name, data = await anext(seen)
        assert name == "changed"
        await api.lease("ann", flavor="gpu-full")
        name, newer = await anext(seen)
        assert newer["version"] > data["version"]


class Source:
    """Events on demand; remembers whether it was closed."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        self.closed = False

    async def events(self) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        try:
            while True:
                yield await self.queue.get()
        finally:
            self.closed = True


async def body_of(streams: Streams, source: Source) -> AsyncIterator[Any]:
    source.queue.put_nowait(("changed", {"version": 1}))
    return (await streams.response(ANN, source.events())).body_iterator.__aiter__()


async def test_silence_is_filled_with_comments() -> None:
    source = Source()
    body = await body_of(Streams(keep_alive_s=0.01), source)
    assert await anext(body) == b'event: changed\ndata: {"version": 1}\n\n'
    assert (await anext(body)).startswith(b":")
    source.queue.put_nowait(("changed", {"version": 2}))
    while (chunk := await anext(body)).startswith(b":"):
        pass
    assert b'"version": 2' in chunk
    await body.aclose()  # type: ignore[attr-defined]
    await until(lambda: source.closed)


async def test_shutting_down_ends_every_stream() -> None:
    streams, sources = Streams(), [Source(), Source()]
    bodies = [await body_of(streams, source) for source in sources]
    for body in bodies:
        await anext(body)
    streams.close()
    for body in bodies:
        assert [chunk async for chunk in body] == []
    await until(lambda: all(source.closed for source in sources))


async def test_a_person_has_a_bounded_number_of_streams() -> None:
    streams = Streams(per_person=2)
    bodies = [await body_of(streams, Source()) for _ in range(2)]
    for body in bodies:
        await anext(body)
    with pytest.raises(TooManyStreams):
        await body_of(streams, Source())
    await bodies[0].aclose()  # type: ignore[attr-defined]
    again = await body_of(streams, Source())
    await anext(again)
    for body in (bodies[1], again):
        await body.aclose()  # type: ignore[attr-defined]


async def test_a_source_that_breaks_ends_the_stream(caplog: pytest.LogCaptureFixture) -> None:
    async def breaks() -> AsyncIterator[tuple[str, dict[str, Any]]]:
        yield "changed", {"version": 1}
        raise RuntimeError("broken")

    response = await Streams().response(ANN, breaks())
    assert len([chunk async for chunk in response.body_iterator]) <= 1
    assert "a stream broke" in caplog.text


async def test_a_client_that_goes_ends_its_stream(api: BrokerApi) -> None:
    async with api.served() as url:
        async with stream(f"{url}api/v1/events", HUB_TOKEN) as answer:
            await anext(events(answer))
            assert api.context.streams.open_streams == 1
        await until(lambda: api.context.streams.open_streams == 0)


async def test_stopping_the_server_does_not_wait_for_streams(api: BrokerApi) -> None:
    async with asyncio.timeout(5):
        async with api.served() as url:
            client = httpx.AsyncClient(trust_env=False, headers={"Authorization": f"Bearer {HUB_TOKEN}"})
            request = client.build_request("GET", f"{url}api/v1/events")
            answer = await client.send(request, stream=True)
            assert answer.status_code == 200
        await answer.aclose()
        await client.aclose()
