"""The hub's API as the broker uses it: the same for a real JupyterHub and for the fake of the other tests."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest
from allotment_hub.broker.browser_sessions import challenge_of
from allotment_hub.broker.hub_client import HubClient
from allotment_hub.broker.identity import caller_of
from allotment_testing.fake_hub_api import ACCESS, ACT_AS, FakeHubApi
from allotment_testing.real_hub import RealHub, real_hub

CALLBACK = "/services/allotment/oauth_callback"
VERIFIER = "v" * 43
NAVIGATION = {"Sec-Fetch-Dest": "document", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Site": "none"}


@dataclass
class Subject:
    """One hub: a client of the broker's, tokens of each kind, and a browser that may sign in."""

    client: HubClient
    tokens: dict[str, str]
    browser: httpx.AsyncClient
    kind: str


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealHub]:
    with real_hub(tmp_path_factory.mktemp("hub")) as hub:
        yield hub


@pytest.fixture(params=["real", "fake"])
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    if request.param == "real":
        hub: RealHub = request.getfixturevalue("started")
        tokens = {"root": hub.admin_token, "ann": hub.user_token, "acting": hub.acting_token}
        browser = httpx.AsyncClient(base_url=hub.url, trust_env=False, headers=NAVIGATION)
        client = HubClient(api_url=f"{hub.url}/hub/api", token=hub.service_token)
    else:
        fake = FakeHubApi(service_token="s" * 32)
        fake.add_user("root", admin=True)
        fake.add_user("ann", groups=("staff",))
        tokens = {
            "root": fake.add_token("root", "access:services"),
            "ann": fake.add_token("ann", ACCESS),
            "acting": fake.add_token("other-hub", ACCESS, ACT_AS, kind="service"),
        }
        fake.signed_in_as = "ann"
        browser = httpx.AsyncClient(base_url="http://hub", transport=fake.transport, headers=NAVIGATION)
        client = HubClient(api_url="http://hub/hub/api", token="s" * 32, transport=fake.transport)
    yield Subject(client, tokens, browser, request.param)
    await client.close()
    await browser.aclose()


async def test_who_a_token_is(subject: Subject) -> None:
    found = {}
    for name, token in subject.tokens.items():
        model = await subject.client.identify(token)
        assert model is not None
        caller = caller_of(model, operators_group="nobody")
        found[name] = (caller.name, caller.kind, caller.operator, caller.act_as, set(caller.groups))
    assert found == {
        "root": ("root", "person", True, False, set()),
        "ann": ("ann", "person", False, False, {"staff"}),
        "acting": ("other-hub", "service", False, True, set()),
    }
    assert await subject.client.identify("x" * 32) is None


async def test_groups_and_servers(subject: Subject) -> None:
    client = subject.client
    assert await client.groups_of("ann") == {"staff"}
    assert await client.groups_of("no-such-person") == frozenset()
    assert await client.server_state("ann", "") == "absent"
    assert await client.server_state("ann", "work") == "absent"
    await client.stop_server("ann", "no-such-server")
    await client.stop_server("no-such-person", "")


async def authorize(subject: Subject, **changes: str) -> httpx.Response:
    query = {
        "client_id": "service-allotment",
        "redirect_uri": CALLBACK,
        "response_type": "code",
        "state": "the-state",
        "code_challenge": challenge_of(VERIFIER),
        "code_challenge_method": "S256",
    }
    if subject.kind == "real" and not subject.browser.cookies:
        page = await subject.browser.get("/hub/login")
        found = re.search(r'name="_xsrf" value="([^"]+)"', page.text)
        assert found is not None
        form = {"username": "ann", "password": "pw", "_xsrf": found.group(1)}
        assert (await subject.browser.post("/hub/login", data=form)).status_code == 302
    return await subject.browser.get("/hub/api/oauth2/authorize?" + urlencode(query | changes))


async def code_of(subject: Subject) -> str:
    answer = await authorize(subject)
    assert answer.status_code == 302, answer.text
    back = urlsplit(answer.headers["location"])
    assert back.path == CALLBACK
    query = parse_qs(back.query)
    assert query["state"] == ["the-state"]
    return query["code"][0]


async def test_signing_in_with_pkce(subject: Subject) -> None:
    code = await code_of(subject)
    token = await subject.client.exchange(code=code, verifier=VERIFIER, redirect_uri=CALLBACK)
    assert token is not None
    model = await subject.client.identify(token)
    assert model is not None
    assert caller_of(model, operators_group="staff").operator
    again = await subject.client.exchange(code=code, verifier=VERIFIER, redirect_uri=CALLBACK)
    assert again is None


async def test_a_stolen_code_is_useless_without_the_verifier(subject: Subject) -> None:
    code = await code_of(subject)
    assert await subject.client.exchange(code=code, verifier="w" * 43, redirect_uri=CALLBACK) is None


async def test_another_redirect_is_refused(subject: Subject) -> None:
    answer = await authorize(subject, redirect_uri="https://evil.example/")
    assert answer.status_code == 400
