"""Allotment's part of a notebook server: a real Jupyter server, without a hub and without a broker."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import allotment
import allotment_spawner
import pytest
from allotment.jupyter.room import Room
from allotment.jupyter.session import dashboard_url
from allotment.jupyter.sse import events
from allotment_hub.host.probes import request
from allotment_testing.broker_api import until
from allotment_testing.installation import free_port, wait_until
from tornado.httpclient import HTTPClientError
from tornado.websocket import websocket_connect

TOKEN = "the-servers-own-token"
REPO = "https://git.example.org/ann/course"
LABEXTENSION = Path(allotment.__file__).parent / "labextension"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of a notebook server in a session whose broker is away."""
    home = tmp_path_factory.mktemp("home")
    yield from serve(
        home, {"ALLOTMENT_URL": "http://127.0.0.1:9/services/allotment/", "ALLOTMENT_LEASE": "x"}
    )


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A notebook server that has nothing to do with Allotment."""
    yield from serve(tmp_path_factory.mktemp("home"), {})


def serve(home: Path, session: Mapping[str, str]) -> Iterator[str]:
    port = free_port()
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("ALLOTMENT_", "JUPYTER"))}
    told = {"ALLOTMENT_FLAVOR_TITLE": "10 GB GPU", "ALLOTMENT_DEVICES": "MIG-1", "JUPYTERHUB_API_TOKEN": "t"}
    argv = [sys.executable, "-m", "jupyter_server", f"--port={port}", "--ip=127.0.0.1", "--allow-root"]
    argv += [f"--IdentityProvider.token={TOKEN}", "--no-browser", f"--ServerApp.root_dir={home}"]
    env = {**kept, **session, **(told if session else {}), "HOME": str(home)}
    with (home / "server.log").open("wb") as log:
        process = subprocess.Popen(argv, env=env, cwd=home, stdout=log, stderr=log)
        try:
            url = f"http://127.0.0.1:{port}/"
            wait_until(lambda: request(f"{url}api", timeout_s=1).status == 200, what="the server answers")
            yield url
        finally:
            process.terminate()
            process.wait(20)


def ask(url: str, path: str, *, token: str | None = TOKEN, **options: Any) -> Any:
    return request(f"{url}{path}", token=token, timeout_s=20, **options)


def test_the_session_is_told_also_while_the_broker_is_away(server: str) -> None:
    document = ask(server, "allotment/session").json()
    assert (document["lease"], document["flavor_title"]) == ("x", "10 GB GPU")
    assert (document["since"], document["price_per_hour"], document["simulated"]) == (None, None, None)
    assert document["home"]["free_bytes"] > 0
    assert document["packages"] == {"state": "none"}
    assert document["dashboard"] == "/services/allotment/"


def test_only_the_servers_own_person_is_answered(server: str) -> None:
    assert ask(server, "allotment/session", token=None).status in (302, 403)
    assert (
        ask(server, "allotment/packages", token=None, method="POST", body={"choice": "clean"}).status == 403
    )


async def test_the_socket_lets_nobody_in_without_a_token(server: str) -> None:
    with pytest.raises(HTTPClientError, match="403"):
        await websocket_connect(f"{server.replace('http', 'ws')}allotment/notices")
    socket = await websocket_connect(f"{server.replace('http', 'ws')}allotment/notices?token={TOKEN}")
    for nonsense in (
        "{",
        "[" * 100_000,
        "[]",
        '{"type": "saved"}',
        '{"type": "saved", "id": 1, "saved": "x"}',
    ):
        await socket.write_message(nonsense)
    socket.close()
    assert ask(server, "allotment/session").status == 200, "what a page says breaks nothing"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"choice": "aside"}, 200),
        ({"choice": "../x"}, 400),
        ({}, 400),
        ({"choice": ["aside"]}, 400),
        ([1], 400),
    ],
)
def test_packages_take_only_what_is_offered(server: str, body: Any, status: int) -> None:
    answer = ask(server, "allotment/packages", method="POST", body=body)
    assert answer.status == status, answer.body
    if status == 200:
        assert answer.json()["sentence"]


def test_the_page_of_a_git_link_shows_what_the_link_says_as_text(server: str) -> None:
    told = {"repo": REPO, "urlpath": "lab/tree/<img src=x onerror=alert(1)>", "branch": '"><script>'}
    answer = ask(server, f"git-pull?{urlencode(told)}")
    assert answer.status == 200
    assert "&lt;img src=x" in answer.body.decode()
    assert "<img src=x" not in answer.body.decode()
    assert '"><script>' not in answer.body.decode()


@pytest.mark.parametrize(
    "told",
    [
        {"repo": "javascript:alert(1)"},
        {"repo": 'https://git.example.org/"><script>alert(1)</script>'},
        {"repo": REPO, "urlpath": "%2e%2e/%2E./hub/logout"},
        {"repo": REPO, "subPath": "../../hub/logout"},
    ],
)
def test_a_git_link_that_leads_away_is_refused(server: str, told: dict[str, str]) -> None:
    answer = ask(server, f"git-pull?{urlencode(told)}")
    assert answer.status == 400
    assert "<script>alert" not in answer.body.decode()


def test_a_server_that_is_none_of_ours_gets_nothing(plain: str) -> None:
    assert ask(plain, "allotment/session").status == 404


def test_the_labextension_is_found_and_of_this_version(server: str) -> None:
    package = json.loads((LABEXTENSION / "package.json").read_text())
    version = (Path(allotment_spawner.__file__).parents[1] / "VERSION").read_text().strip()
    assert package["version"] == version
    load = LABEXTENSION / package["jupyterlab"]["_build"]["load"]
    assert load.is_file()
    assert package["name"] in load.read_text()


def test_the_labextension_loads_nothing_from_elsewhere() -> None:
    """Written by hand, no bundler: every module that is imported lies beside it."""
    for module in LABEXTENSION.glob("static/*.js"):
        text = module.read_text()
        for name in re.findall(r"from '([^']+)'", text):
            assert (module.parent / name).is_file(), (module.name, name)
        assert not re.search(r"https?://|eval\(|innerHTML|new Function", text), module.name


async def test_events_are_read_whatever_is_between_them() -> None:
    async def lines() -> Any:
        for line in (
            ": keep-alive", "", "event: notice", 'data: {"id":', 'data: "1"}', "", "data: no json", "",
            "data: [1]", "", 'data: {"a": 1}', "", "event: half",
        ):  # fmt: skip
            yield line

    assert [one async for one in events(lines())] == [("notice", {"id": "1"}), ("message", {"a": 1})]


async def test_a_home_is_counted_behind_the_answer(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    room = Room(home=tmp_path)
    assert room.look()["used_bytes"] is None, "unknown until it was counted"
    await until(lambda: room.look()["used_bytes"] is not None, deadline_s=20)
    used = room.look()["used_bytes"]
    assert used is not None
    assert 100_000 <= used < 200_000
    await room.close()


async def test_a_home_that_is_not_there_is_unknown(tmp_path: Path) -> None:
    room = Room(home=tmp_path / "gone")
    assert room.look() == {"used_bytes": None, "free_bytes": None}
    await room.close()


@pytest.mark.parametrize(
    ("env", "url"),
    [
        ({}, "/services/allotment/"),
        ({"JUPYTERHUB_BASE_URL": "/lab/"}, "/lab/services/allotment/"),
        (
            {"JUPYTERHUB_PUBLIC_HUB_URL": "https://h.example/lab/hub/"},
            "https://h.example/lab/services/allotment/",
        ),
    ],
)
def test_the_way_to_allotments_page(env: dict[str, str], url: str) -> None:
    assert dashboard_url(env) == url
