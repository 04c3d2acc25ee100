"""Links with options fill the form in and start nothing; versions, data and doors of a start."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import httpx
import pytest
import pytest_asyncio
from allotment_spawner.core.errors import TooManySessions
from allotment_spawner.core.lease import EndReason, LeaseState
from allotment_spawner.wire import Work
from allotment_testing.fake_broker import FakeBroker
from allotment_testing.fake_things import NEWER, OLDER, RETIRED, some_datasets, some_mounts, some_versions
from allotment_testing.hub_browser import sign_in, xsrf_of
from allotment_testing.hub_calls import CPU, TEN, ask, gone, processes_of, ready, stop
from allotment_testing.hub_process import HubProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")

REPO = "https://git.example.org/ann/course.git"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lea(hub: HubProcess) -> AsyncIterator[httpx.AsyncClient]:
    async with sign_in(hub, "lea") as client:
        yield client


@pytest.fixture(autouse=True)
def plain(broker: FakeBroker) -> Iterator[None]:
    yield
    broker.versions, broker.mounts, broker.datasets = (), [], []
    broker.reasons, broker.used_bytes, broker.waits_for = {}, None, None
    for lease in broker.live():
        broker.end(lease, EndReason.STOPPED)


def environ(lease: str) -> dict[str, str]:
    """The variables that the server of this lease was started with."""
    raw = Path(f"/proc/{processes_of(lease)[0]}/environ").read_bytes()
    return dict(one.decode().split("=", 1) for one in raw.split(b"\0") if b"=" in one)


def checked(page: str, name: str) -> list[str]:
    """Values of the inputs of this name that are checked, in order."""
    inputs = [tag.split(">", 1)[0] for tag in page.split("<input")[1:]]
    found = [tag for tag in inputs if f'name="{name}"' in tag and " checked" in tag]
    return [tag.split('value="', 1)[1].split('"', 1)[0] for tag in found]


@pytest.mark.parametrize(
    "query",
    [
        "opt-environment=minimal&opt-flavor=gpu-10gb",
        "environment=minimal&flavor=gpu-10gb",
        f"opt-repo={REPO}",
        "opt-",
    ],
)
async def test_opening_a_link_starts_nothing(
    hub: HubProcess, broker: FakeBroker, lea: httpx.AsyncClient, query: str
) -> None:
    before = len(broker.leases)
    for path in ("/hub/spawn", "/hub/spawn/lea", "/hub/spawn/lea/other"):
        page = await lea.get(f"{path}?{query}")
        assert page.status_code == 200
        assert page.url.path == path
        assert 'id="spawn_form"' in page.text
    assert len(broker.leases) == before
    model = await hub.server("lea")
    assert model is None or model["stopped"]


async def test_a_link_fills_the_form_in_and_one_click_starts(
    hub: HubProcess, broker: FakeBroker, lea: httpx.AsyncClient
) -> None:
    size = "opt-environment=minimal&opt-flavor=gpu-10gb"
    page = await lea.get(f"/hub/spawn?{size}&opt-repo={REPO}&opt-branch=dev&opt-app=notebook")
    assert "This link brings files from" in page.text
    assert "start only what you trust" in page.text
    assert [checked(page.text, name) for name in ("environment", "flavor", "app")] == [
        ["minimal"],
        ["gpu-10gb"],
        ["notebook"],
    ]
    assert f'name="repo" value="{REPO}"' in page.text
    assert 'action="/hub/spawn"' in page.text
    sent = {**TEN, "app": "notebook", "repo": REPO, "branch": "dev", "urlpath": ""}
    answer = await lea.post("/hub/spawn", data={**sent, "_xsrf": xsrf_of(page.text)})
    assert answer.url.query == b""
    await ready(hub, "lea")
    assert broker.of("lea").request.flavor == "gpu-10gb"
    opens = urlsplit(environ(broker.of("lea").id)["JUPYTERHUB_DEFAULT_URL"])
    assert opens.path == "/git-pull"
    assert parse_qs(opens.query) == {
        "repo": [REPO],
        "branch": ["dev"],
        "targetpath": ["course"],
        "urlpath": ["tree/course"],
    }
    await leave_and_come_back(hub, lea)


async def leave_and_come_back(hub: HubProcess, lea: httpx.AsyncClient) -> None:
    """A link to the server that runs, and the form after it."""
    running = await lea.get(f"/hub/spawn?opt-repo={REPO}", follow_redirects=False)
    where = urlsplit(running.headers["location"])
    assert where.path == "/user/lea/git-pull", "a server that runs opens it at once"
    assert parse_qs(where.query)["repo"] == [REPO]
    await stop(hub, "lea")
    await gone(hub, "lea")
    again = (await lea.get("/hub/spawn")).text
    assert checked(again, "app") == ["notebook"]
    assert 'name="repo" value=""' in again, "a repository belongs to one start"


async def test_what_is_wrong_with_a_link_is_said(broker: FakeBroker, lea: httpx.AsyncClient) -> None:
    page = unescape(
        (await lea.get("/hub/spawn?opt-flavor=gpu-2x&opt-environment=nope&opt-repo=file:///etc")).text
    )
    assert "The link asks for gpu-2x: This machine has no two whole cards." in page
    assert "The link asks for nope: it is not offered to you here." in page
    assert "A repository's address must begin with https://." in page
    assert "This link brings files" not in page
    script = (await lea.get("/hub/spawn?opt-flavor=<script>alert(1)</script>")).text
    assert "<script>alert(1)" not in script
    data = unescape((await lea.get("/hub/spawn?opt-datasets=mnist&opt-datasets=secret")).text)
    assert "data that is not offered to you here: mnist, secret" in data


async def test_what_is_no_text_is_refused_and_breaks_nothing(lea: httpx.AsyncClient) -> None:
    for path in ("/hub/spawn", "/hub/spawn/lea/other"):
        assert (await lea.get(f"{path}?opt-repo=%ff")).status_code == 400
        token = xsrf_of((await lea.get(path)).text)
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = await lea.post(path, content=f"environment=%ff&_xsrf={quote(token)}", headers=headers)
        assert answer.status_code == 400


async def test_next_survives_and_leads_nowhere_else(hub: HubProcess, lea: httpx.AsyncClient) -> None:
    page = await lea.get(
        "/hub/spawn", params={"next": "/user/lea/git-pull?repo=https://h/a/b", "opt-app": "lab"}
    )
    action = unescape(page.text.split('action="', 1)[1].split('"', 1)[0])
    assert parse_qs(urlsplit(action).query) == {"next": ["/user/lea/git-pull?repo=https://h/a/b"]}
    evil = await lea.get("/hub/spawn", params={"next": '"><script>alert(1)</script>'})
    assert "<script>alert(1)" not in evil.text


async def test_nobody_is_moved_to_a_newer_version_unasked(
    hub: HubProcess, broker: FakeBroker, lea: httpx.AsyncClient
) -> None:
    broker.versions = some_versions()[1:]  # what was offered then
    await ask(hub, "lea", CPU)
    await ready(hub, "lea")
    assert broker.of("lea").request.version is None
    await stop(hub, "lea")
    await gone(hub, "lea")
    broker.versions = some_versions()
    page = (await lea.get("/hub/spawn")).text
    assert "A newer version is here. You keep yours until you choose the new one." in page
    assert "numpy 2.3.0 → 2.4.0" in page
    assert checked(page, "version-minimal") == [OLDER]
    assert RETIRED not in page
    form = {**CPU, "version-minimal": OLDER, "_xsrf": xsrf_of(page)}
    await lea.post("/hub/spawn", data=form)
    await ready(hub, "lea")
    assert broker.of("lea").request.version == OLDER
    await stop(hub, "lea")
    await gone(hub, "lea")
    await lea.post("/hub/spawn", data={**form, "version-minimal": ""})
    await ready(hub, "lea")
    assert broker.of("lea").request.version is None
    await stop(hub, "lea")
    await gone(hub, "lea")
    page = (await lea.get("/hub/spawn")).text
    assert "A newer version" not in page
    assert checked(page, "version-minimal") == [""]
    retired = (await lea.get(f"/hub/spawn?opt-version={RETIRED}")).text
    assert "(0.1.0-cpu) was retired; the newest one replaces it" in retired
    assert NEWER not in retired.split("version-minimal", 1)[1].split("</fieldset>", 1)[0]


async def test_the_form_shows_home_folders_and_data(broker: FakeBroker, lea: httpx.AsyncClient) -> None:
    page = (await lea.get("/hub/spawn")).text
    assert "How full your home is, is not known yet." in page
    broker.mounts, broker.datasets, broker.used_bytes = some_mounts(), some_datasets(), 9 * 2**30 + 2**29
    page = (await lea.get("/hub/spawn?opt-datasets=imagenet")).text
    assert "9.5 GB of 10 GB used (95 %), 1,200 files." in page
    assert "Your home is nearly full" in page
    assert "Course &lt;files&gt;" in page
    assert "shared folder, read only" in page
    assert "shared folder, you can write" in page
    for said in ("Ready · 4 GB", "Fetched before your session starts · 4 GB", "Being fetched: 25 %"):
        assert said in page
    assert "The server that has it answers 404." in page
    assert checked(page, "datasets") == ["imagenet"]
    choices = (await lea.get("/hub/allotment/choices")).json()
    assert choices["home"]["percent"] == 95
    assert choices["datasets"][2]["state"] == "fetching"


async def test_commands_in_a_reason_are_shown_as_such(lea: httpx.AsyncClient) -> None:
    page = (await lea.get("/hub/spawn")).text
    assert "<code>images/build pytorch</code>, then" in page


async def test_a_part_that_does_not_answer_hides_nothing_else(
    broker: FakeBroker, lea: httpx.AsyncClient
) -> None:
    broker.refusals = {
        f"GET {one}": [TooManySessions("No.", "Later.")] for one in ("homes", "mounts", "datasets")
    }
    page = await lea.get("/hub/spawn")
    assert page.status_code == 200
    assert 'name="flavor" value="gpu-10gb"' in page.text
    assert "Your home" not in page.text


async def test_data_is_asked_for_and_its_way_is_shown(
    hub: HubProcess, broker: FakeBroker, lea: httpx.AsyncClient
) -> None:
    broker.datasets = some_datasets()
    broker.waits_for = Work(sentence="Fetching imagenet: 25 %", got_bytes=2**30, total_bytes=4 * 2**30)
    form = await lea.get("/hub/spawn")
    sent: dict[str, Any] = {**CPU, "datasets": ["imagenet", "mnist"], "_xsrf": xsrf_of(form.text)}
    page = await lea.post("/hub/spawn", data=sent)
    assert "Fetching imagenet: 25 %" in page.text
    lease = broker.of("lea")
    assert lease.request.datasets == ("imagenet", "mnist")
    assert lease.state is LeaseState.QUEUED
    broker.waits_for = None
    broker.schedule()
    await ready(hub, "lea")
    await stop(hub, "lea")
    await gone(hub, "lea")
    assert checked((await lea.get("/hub/spawn")).text, "datasets") == ["mnist", "imagenet"]


async def test_a_refused_form_is_shown_again_as_it_was_sent(
    broker: FakeBroker, lea: httpx.AsyncClient
) -> None:
    broker.datasets = some_datasets()
    broker.refusals["POST leases"] = [TooManySessions("You have three sessions.", "Stop one.")]
    form = await lea.get("/hub/spawn/lea/other")
    sent: dict[str, Any] = {**TEN, "datasets": ["cifar"], "app": "terminal", "repo": REPO}
    answer = await lea.post("/hub/spawn/lea/other", data={**sent, "_xsrf": xsrf_of(form.text)})
    assert answer.status_code == 422
    assert "You have three sessions." in answer.text
    assert [checked(answer.text, name) for name in ("flavor", "datasets", "app")] == [
        ["gpu-10gb"],
        ["cifar"],
        ["terminal"],
    ]
    assert f'name="repo" value="{REPO}"' in answer.text
    assert "This link" not in answer.text


async def test_a_pair_that_does_not_go_together_is_not_preselected(
    broker: FakeBroker, lea: httpx.AsyncClient
) -> None:
    why = "It needs driver 560.28.03; this machine has 535.104.05."
    broker.reasons = {"gpu-10gb": why}
    page = (await lea.get("/hub/spawn?opt-flavor=gpu-10gb")).text
    assert checked(page, "flavor") == ["cpu"]
    assert f"The link asks for gpu-10gb: {why}" in unescape(page)
