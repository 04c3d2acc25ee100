"""The hub client tells absent from unknown, and raises nothing but HubUnavailable."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import unquote

import httpx
import pytest
from allotment_hub.broker.hub_client import HubClient
from allotment_hub.broker.services.ports import HubUnavailable
from allotment_testing.fake_hub_api import ACCESS, FakeHubApi, HubThatAnswers500, HubThatIsSilent

TOKEN = "broker-service-token-1"


@pytest.fixture
def hub() -> FakeHubApi:
    return FakeHubApi(service_token=TOKEN)


@pytest.fixture
async def client(hub: FakeHubApi) -> AsyncIterator[HubClient]:
    made = HubClient(api_url="http://hub/hub/api", token=TOKEN, transport=hub.transport)
    yield made
    await made.close()


@pytest.mark.parametrize(
    ("pending", "ready", "state"),
    [
        (None, True, "ready"),
        ("spawn", False, "spawning"),
        ("stop", True, "stopping"),
        ("check", False, "ready"),
        (None, False, "absent"),
    ],
)
async def test_server_states(
    hub: FakeHubApi, client: HubClient, pending: str | None, ready: bool, state: str
) -> None:
    hub.add_user("ann").servers["work"] = (pending, ready)
    assert await client.server_state("ann", "work") == state
    assert await client.server_state("ann", "") == "absent"


async def test_groups(hub: FakeHubApi, client: HubClient) -> None:
    hub.add_user("ann", groups=("staff", "gpu"))
    assert await client.groups_of("ann") == {"staff", "gpu"}
    assert await client.groups_of("nobody") == frozenset()
    assert await client.server_state("nobody", "") == "absent"


class HubThatRecords(httpx.AsyncBaseTransport):
    """Knows nobody, and keeps the paths it was asked for as they came over the wire."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.paths.append(request.url.raw_path.decode("ascii"))
        return httpx.Response(404, json={"status": 404, "message": "Not Found"}, request=request)


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a?b#c", "ä b", "x" * 255, "%2e%2e", "\\"])
async def test_odd_names_stay_in_their_segment(name: str) -> None:
    hub = HubThatRecords()
    client = HubClient(api_url="http://hub/hub/api", token=TOKEN, transport=hub)
    assert await client.groups_of(name) == frozenset()
    await client.stop_server(name, name)
    await client.close()
    user, stop = (path.removeprefix("/hub/api/users/").split("/") for path in hub.paths)
    assert [unquote(part) for part in user] == [name]
    assert [unquote(part) for part in stop] == [name, "servers", name]


async def test_stop_server_of_either_kind(hub: FakeHubApi, client: HubClient) -> None:
    user = hub.add_user("ann")
    user.servers.update({"": (None, True), "work": (None, True)})
    await client.stop_server("ann", "")
    await client.stop_server("ann", "work")
    await client.stop_server("ann", "gone-already")
    assert hub.stopped == [("ann", ""), ("ann", "work")]


@pytest.mark.parametrize("transport", [HubThatIsSilent(), HubThatAnswers500()])
async def test_a_hub_that_fails_is_unknown_never_absent(transport: httpx.AsyncBaseTransport) -> None:
    client = HubClient(api_url="http://hub/hub/api", token=TOKEN, transport=transport)
    for call in (
        client.groups_of("ann"),
        client.server_state("ann", ""),
        client.stop_server("ann", ""),
        client.identify("token"),
        client.exchange(code="c", verifier="v", redirect_uri="/x"),
    ):
        with pytest.raises(HubUnavailable):
            await call
    await client.close()


class HubThatGrantsTooLittle(httpx.AsyncBaseTransport):
    """Its role for the broker lacks read:servers and read:users:groups."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"kind": "user", "name": "ann"}, request=request)


async def test_a_role_that_lacks_scopes_is_unknown_never_absent() -> None:
    client = HubClient(api_url="http://hub/hub/api", token=TOKEN, transport=HubThatGrantsTooLittle())
    with pytest.raises(HubUnavailable):
        await client.server_state("ann", "")
    with pytest.raises(HubUnavailable):
        await client.groups_of("ann")
    await client.close()


class HubThatTalksNonsense(httpx.AsyncBaseTransport):
    """200, but not the JSON object that was asked for."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=self.body, request=request)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b"{}"])
async def test_nonsense_is_unknown(body: bytes) -> None:
    client = HubClient(api_url="http://hub/hub/api", token=TOKEN, transport=HubThatTalksNonsense(body))
    with pytest.raises(HubUnavailable):
        await client.identify("token")
    with pytest.raises(HubUnavailable):
        await client.server_state("ann", "")
    await client.close()


async def test_identify_knows_and_does_not_know(hub: FakeHubApi, client: HubClient) -> None:
    hub.add_user("ann")
    model = await client.identify(hub.add_token("ann", ACCESS))
    assert model is not None
    assert model["name"] == "ann"
    assert await client.identify("some-other-token") is None
