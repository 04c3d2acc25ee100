"""Our pages and calls in the hub: form, waiting page, refusal page, JSON, events, cancel, CPU instead."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from allotment_spawner.core.errors import FlavorUnavailable
from allotment_spawner.core.lease import EndReason
from allotment_spawner.wire import LeaseRequest
from allotment_testing.fake_broker import FakeBroker
from allotment_testing.hub_browser import sign_in, xsrf_of
from allotment_testing.hub_calls import TEN, ask, gone, ready, stop
from allotment_testing.hub_process import HubProcess, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ann(hub: HubProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with sign_in(hub, "ann") as client:
        yield client


@pytest.fixture
def full(broker: FakeBroker) -> None:
    """Both slices are taken and one person waits already."""
    for lease in broker.live():
        broker.end(lease, EndReason.STOPPED)
    for name in ("f1", "f2", "f3"):
        broker.enter(f"{name}-{len(broker.leases)}", LeaseRequest.model_validate({"user": name, **TEN}))


async def test_the_form_says_what_can_be_picked_and_why_not(ann: httpx.AsyncClient) -> None:
    page = (await ann.get("/hub/spawn")).text
    assert "Simulated hardware." in page
    assert "Local engine, for trying out." in page
    assert 'name="environment" value="minimal"' in page
    assert 'name="flavor" value="gpu-10gb"' in page
    assert "0.40 credits an hour" in page
    assert "This machine has no two whole cards." in page
    assert "It needs the Docker engine" in page
    assert "Starts now: 2 of 2 free." in page
    assert "For notebooks &amp; small models" in page
    for file in ("allotment.css", "form.js", "wait.js"):
        assert f"/hub/allotment/static/{file}" in page or file == "wait.js"
        assert (await ann.get(f"/hub/allotment/static/{file}")).status_code == 200
    assert (await ann.get("/hub/allotment/static/../templates/spawn.html")).status_code in (403, 404)


async def test_choices_and_leases_are_one_s_own(hub: HubProcess, ann: httpx.AsyncClient) -> None:
    choices = (await ann.get("/hub/allotment/choices")).json()
    assert choices["selected"]["environment"] == "minimal"
    assert choices["selected"]["flavor"] == "cpu"
    assert choices["flavors"][1]["outcome"] == "Starts now: 2 of 2 free."
    assert (await ann.get("/hub/allotment/lease")).json() == {"lease": None, "explanation": None}
    await hub.add_user("ben")
    for path in ("choices?user=ben", "lease?user=ben", "choices?user=nobody"):
        assert (await ann.get(f"/hub/allotment/{path}")).status_code in (403, 404), path
    async with httpx.AsyncClient(base_url=hub.url) as stranger:
        for path in ("choices", "lease", "events"):
            assert (await stranger.get(f"/hub/allotment/{path}")).status_code == 401


async def test_all_pages_share_one_stream_of_changes(
    hub: HubProcess, broker: FakeBroker, ann: httpx.AsyncClient
) -> None:
    before = broker.calls.count("GET events")
    async with (
        sign_in(hub, "ben") as ben,
        ann.stream("GET", "/hub/allotment/events") as first,
        ben.stream("GET", "/hub/allotment/events") as second,
    ):
        await until(lambda: broker.calls.count("GET events") > before, what="the hub listens")
        broker.schedule()
        for stream in (first, second):
            async for line in stream.aiter_lines():
                if line == "event: changed":
                    break
    assert broker.calls.count("GET events") == before + 1


@pytest.mark.usefixtures("full")
async def test_the_form_leads_to_the_waiting_page_and_cancel_names_its_server(
    hub: HubProcess, broker: FakeBroker, ann: httpx.AsyncClient
) -> None:
    form = await ann.get("/hub/spawn/ann/second")
    assert "None free. You would wait; 1 person before you" in form.text
    page = await ann.post("/hub/spawn/ann/second", data={**TEN, "_xsrf": xsrf_of(form.text)})
    assert page.url.path == "/hub/spawn-pending/ann/second"
    assert page.url.query == b""
    await until(lambda: broker.of("ann", "second"), what="it is queued")
    waiting = await ann.get("/hub/spawn-pending/ann/second")
    assert 'id="allot-place">2<' in waiting.text
    assert "Waiting is free of charge" in waiting.text
    lease = (await ann.get("/hub/allotment/lease?server=second")).json()
    assert lease["lease"]["place"] == 2
    assert set(lease["explanation"]) == {"sentence", "help"}
    without = await ann.post("/hub/allotment/cancel", data={"server": "second"})
    assert without.status_code == 403
    assert broker.of("ann", "second").reason is None
    cancel = {"server": "second", "user": "ann", "_xsrf": xsrf_of(waiting.text)}
    home = await ann.post("/hub/allotment/cancel", data=cancel)
    assert home.url.path == "/hub/home"
    await until(lambda: broker.of("ann", "second").reason, what="the lease ends")
    assert broker.of("ann", "second").reason is EndReason.CANCELLED
    model = await hub.server("ann", "second")
    assert model is not None
    assert model["stopped"]


@pytest.mark.usefixtures("full")
async def test_one_can_start_on_cpu_instead_of_waiting(
    hub: HubProcess, broker: FakeBroker, ann: httpx.AsyncClient
) -> None:
    await ask(hub, "ann", TEN)
    waiting = await ann.get("/hub/spawn-pending/ann")
    page = await ann.post(
        "/hub/allotment/start-on-cpu", data={"server": "", "user": "ann", "_xsrf": xsrf_of(waiting.text)}
    )
    assert page.status_code == 200, page.text
    await ready(hub, "ann")
    assert broker.of("ann").request.flavor == "cpu"
    assert [one.reason for one in broker.leases.values() if one.request.user == "ann"][-2:] == [
        EndReason.CANCELLED,
        None,
    ]
    await stop(hub, "ann")
    await gone(hub, "ann")


async def test_a_refusal_is_said_on_the_form_and_on_its_own_page(
    hub: HubProcess, broker: FakeBroker, ann: httpx.AsyncClient
) -> None:
    why = FlavorUnavailable("The <b>only</b> card is broken.", "Choose another size.")
    broker.refusals["POST leases"] = [why]
    form = await ann.get("/hub/spawn")
    answer = await ann.post("/hub/spawn", data={**TEN, "_xsrf": xsrf_of(form.text)})
    assert answer.status_code == 422
    assert "The &lt;b&gt;only&lt;/b&gt; card is broken." in answer.text
    assert "SpawnException" not in answer.text
    assert 'name="flavor"' in answer.text, "another choice can be made right there"
    page = await ann.get("/hub/spawn-pending/ann")
    assert page.status_code == 422
    assert 'data-code="flavor_unavailable"' in page.text
    assert "Choose another size." in page.text
    assert "Change choice" in page.text


async def test_without_a_broker_the_form_says_so(broker: FakeBroker, ann: httpx.AsyncClient) -> None:
    await broker.down()
    try:
        page = await ann.get("/hub/spawn")
        assert page.status_code == 200
        assert "does not answer" in page.text
        assert "Try again" in page.text
    finally:
        await broker.up()
