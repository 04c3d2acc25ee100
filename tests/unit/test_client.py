"""The client against the broker's real HTTP layer, and against servers that are something else."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import httpx
import pytest
from allotment.client import Client
from allotment.errors import NotAllotment, Refused, Unreachable
from allotment.settings import Settings, find_settings
from allotment_testing.canned_broker import OPERATOR, PERSON, serve_canned_broker


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve_canned_broker() as url:
        yield url


def settings(url: str, token: str = PERSON) -> Settings:
    return Settings(url=url, token=token, hub_url=None, source="a test")


@pytest.fixture
def person(url: str) -> Iterator[Client]:
    with Client(settings(url)) as client:
        yield client


@pytest.fixture
def operator(url: str) -> Iterator[Client]:
    with Client(settings(url, OPERATOR)) as client:
        yield client


def test_says_who_one_is_and_what_answers(person: Client) -> None:
    me = person.me()
    assert (me.name, me.operator, me.simulated, me.engine) == ("ann", False, True, "local")


def test_reads_flavors_with_money_as_decimals(person: Client) -> None:
    flavors = {flavor.id: flavor for flavor in person.flavors()}
    assert flavors["gpu-10gb"].price_per_hour == Decimal("0.40")
    assert (flavors["cpu"].free, flavors["gpu-10gb"].free) == (None, 5)
    assert flavors["gpu-2x"].reason == "This machine has no two whole cards."


def test_reads_environments(person: Client) -> None:
    assert [item.packages for item in person.environments()] == [{"jupyterlab": "4"}]


def test_reads_leases_and_one_of_them(person: Client) -> None:
    assert [item.id for item in person.leases(live=True)] == ["lease-waits", "lease-runs"]
    assert person.lease("lease-runs").devices[0].placement == (0, 1)
    assert person.lease("lease-waits").class_ == "interactive"


def test_explains_without_names_for_people_and_with_names_for_operators(
    person: Client, operator: Client
) -> None:
    assert person.explain("lease-waits").devices[0].holder == "another person"
    assert operator.explain("lease-waits").devices[0].holder == "ann"


def test_reads_the_fleet_for_operators_only(person: Client, operator: Client) -> None:
    fleet = operator.fleet()
    assert [piece.profile for piece in fleet.gpus[0].slices] == ["1g.10gb", "3g.40gb"]
    assert fleet.simulated is True
    with pytest.raises(Refused) as refused:
        person.fleet()
    assert (refused.value.code, refused.value.status) == ("not_allowed", 403)
    assert refused.value.exit_code == 1


def test_a_refusal_carries_sentence_and_next_step(person: Client) -> None:
    with pytest.raises(Refused) as refused:
        person.lease("of-somebody-else")
    assert refused.value.code == "no_such_lease"
    assert refused.value.sentence
    assert refused.value.next_step


def test_an_identifier_cannot_leave_its_path(person: Client) -> None:
    with pytest.raises(Refused) as refused:
        person.lease("../me")
    assert refused.value.status == 404


def test_a_bad_token_is_refused(url: str) -> None:
    with Client(settings(url, "wrong")) as client, pytest.raises(Refused) as refused:
        client.me()
    assert (refused.value.code, refused.value.status) == ("sign_in_needed", 401)


def test_health_and_the_hub_need_no_token(url: str) -> None:
    with Client(settings(url, "wrong")) as client:
        assert client.health().ready
        assert client.hub_version() == "6.1.1"


def test_inside_a_session_the_hub_is_found_beside_the_broker(url: str) -> None:
    hub = url.split("/services/", maxsplit=1)[0] + "/hub/api"
    inside = {"ALLOTMENT_URL": "http://127.0.0.1:1", "JUPYTERHUB_API_TOKEN": "t", "JUPYTERHUB_API_URL": hub}
    with Client(find_settings(inside)) as client:
        assert client.hub_version() == "6.1.1"
    assert find_settings({**inside, "ALLOTMENT_TOKEN": "of another Allotment"}).hub_url is None


def test_a_broker_that_starts_says_so() -> None:
    with serve_canned_broker(ready=False) as url, Client(settings(url)) as client:
        assert not client.health().ready
        with pytest.raises(Refused) as refused:
            client.me()
    assert refused.value.status == 503


def answering(handler: httpx.MockTransport) -> Client:
    return Client(settings("http://broker.test/services/allotment/"), transport=handler)


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (httpx.Response(200, html="<p>Welcome</p>"), NotAllotment),
        (httpx.Response(302, headers={"location": "/hub/login"}), NotAllotment),
        (httpx.Response(200, json={"something": "else"}), NotAllotment),
        (httpx.Response(404, json={"message": "Not Found"}), NotAllotment),
        (httpx.Response(503, html="<h1>Service Unavailable</h1>"), Unreachable),
        (httpx.Response(200, headers={"content-type": "application/json"}, content=b"{"), NotAllotment),
    ],
)
def test_other_servers_are_told_apart(response: httpx.Response, error: type[Exception]) -> None:
    with answering(httpx.MockTransport(lambda request: response)) as client, pytest.raises(error):
        client.me()


def test_a_redirect_never_carries_the_token_elsewhere() -> None:
    asked = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        return httpx.Response(302, headers={"location": "http://elsewhere.test/"})

    with answering(httpx.MockTransport(handler)) as client, pytest.raises(NotAllotment):
        client.me()
    assert asked == ["broker.test"]


@pytest.mark.parametrize("error", [httpx.ConnectError("refused"), httpx.ReadTimeout("slow")])
def test_silence_is_unreachable(error: httpx.TransportError) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise error

    with answering(httpx.MockTransport(handler)) as client, pytest.raises(Unreachable) as raised:
        client.me()
    assert raised.value.exit_code == 2


def test_the_token_is_not_in_the_representation() -> None:
    assert PERSON not in repr(settings("http://broker.test/"))
