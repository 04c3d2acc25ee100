"""Doors of a session in Chromium: a git link, Notebook, a terminal, local web apps closed to others."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from allotment_testing.installation import Installation, wait_until
from playwright.sync_api import Browser, BrowserContext, Page, expect

SHOTS = Path(__file__).resolve().parents[2] / ".cache" / "screenshots"
SLOW_MS = 90_000
REPO = "https://git.example.org/ann/course.git"


@pytest.fixture(scope="module")
def repository(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository that git of the demo person finds at REPO: nothing leaves this machine."""
    folder = tmp_path_factory.mktemp("git") / "course"
    folder.mkdir()
    (folder / "start.md").write_text("# The first lesson\n")
    home = installation.paths.homes / installation.connection.user
    home.mkdir(parents=True, exist_ok=True)
    (home / ".gitconfig").write_text(f'[url "file://{folder}"]\n\tinsteadOf = {REPO}\n')
    env = {**os.environ, "HOME": str(home)}
    who = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-q", "-m", "Begin"]):
        subprocess.run(["git", "-C", str(folder), *words], env=env, check=True)
    return home


def signed_in(browser: Browser, installation: Installation, name: str, password: str) -> BrowserContext:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(30_000)
    page = context.new_page()
    page.goto(installation.connection.hub_url)
    _sign_in(page, name, password)
    page.wait_for_url(re.compile("/hub/(home|spawn)"))
    page.close()
    return context


def _sign_in(page: Page, name: str, password: str) -> None:
    page.fill("input[name=username]", name)
    page.fill("input[name=password]", password)
    page.click("input[type=submit], button[type=submit]")


def shoot(page: Page, name: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png", full_page=True)


def end(installation: Installation, server: str) -> None:
    end_of_path = f"servers/{server}" if server else "server"
    installation.hub("DELETE", f"/users/demo/{end_of_path}")

    def over() -> bool:
        return not installation.broker("leases?user=demo&live=true").json()

    wait_until(over, what="the session is over")


def test_a_git_link_signs_in_asks_and_brings_the_files(
    browser: Browser, installation: Installation, repository: Path
) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(30_000)
    page = context.new_page()
    there = installation.connection
    page.goto(f"{there.hub_url}/hub/spawn?opt-environment=minimal&opt-flavor=gpu-10gb&opt-repo={REPO}")
    _sign_in(page, there.user, there.user_password)
    expect(page.locator("[data-link]")).to_contain_text(f"This link brings files from {REPO}")
    expect(page.locator("input[name=flavor][value=gpu-10gb]")).to_be_checked()
    assert installation.broker("leases?user=demo").json() == [], "nothing is started by looking at it"
    shoot(page, "link-form")
    page.click("#allot-start")
    page.wait_for_url(re.compile("/lab/tree/course"), timeout=SLOW_MS)
    expect(page.locator(".jp-DirListing-content")).to_contain_text("start.md", timeout=SLOW_MS)
    shoot(page, "link-lab")
    assert (repository / "course" / "start.md").read_text() == "# The first lesson\n"
    context.close()
    end(installation, "")


def test_the_form_gets_all_its_parts_from_the_broker(browser: Browser, installation: Installation) -> None:
    there = installation.connection
    context = signed_in(browser, installation, there.user, there.user_password)
    choices = context.request.get(f"{there.hub_url}/hub/allotment/choices").json()
    known = {name: choices[name] is not None for name in ("home", "mounts", "datasets")}
    assert known == {"home": True, "mounts": True, "datasets": True}
    assert choices["home"]["user"] == there.user
    context.close()


@pytest.mark.parametrize(
    ("app", "seen"), [("notebook", ".jp-FileBrowser, .jp-DirListing"), ("terminal", ".jp-Terminal, .xterm")]
)
def test_other_doors(browser: Browser, installation: Installation, app: str, seen: str) -> None:
    there = installation.connection
    context = signed_in(browser, installation, there.user, there.user_password)
    page = context.new_page()
    page.goto(f"{there.hub_url}/hub/spawn/demo/{app}")
    page.locator("input[name=flavor][value=cpu]").check(force=True)
    page.locator(f"input[name=app][value={app}]").check(force=True)
    expect(page.locator("#allot-summary")).to_contain_text("It opens")
    page.click("#allot-start")
    page.wait_for_selector(seen, timeout=SLOW_MS)
    if app == "terminal":
        page.locator(".xterm").first.click()
        page.keyboard.type("expr 40 + 2 > answer.txt && echo written\n")
        made = installation.paths.homes / "demo" / "answer.txt"
        wait_until(lambda: made.exists() and made.read_text() == "42\n", what="the terminal's command ran")
    shoot(page, f"door-{app}")
    context.close()
    end(installation, app)


class _Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Somebody's web app inside a session, without a sign-in of its own."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"private page of a web app")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def web_app() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), _Hello)
    thread = threading.Thread(target=server.serve_forever, name="web-app")
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def test_web_apps_of_a_session_are_open_to_its_person_only(
    browser: Browser, installation: Installation, web_app: int
) -> None:
    installation.start_session("demo", "app", flavor="cpu")
    there = installation.connection
    path = f"{there.hub_url}/user/demo/app/proxy/{web_app}/"
    own = signed_in(browser, installation, there.user, there.user_password)
    page = own.new_page()
    page.goto(path)
    expect(page.locator("body")).to_have_text("private page of a web app", timeout=SLOW_MS)
    stranger = browser.new_context()
    answer = stranger.request.get(path)
    assert "/hub/login" in answer.url
    assert "private page" not in answer.text()
    installation.hub("POST", "/users/eve")
    password = "correct horse battery staple"
    assert installation.hub("PUT", "/allotment/accounts/eve", {"password": password}).status in (200, 201)
    eve = signed_in(browser, installation, "eve", password)
    refused = eve.request.get(path)
    assert refused.status == 403
    assert "private page" not in refused.text()
    token = installation.hub("POST", "/users/eve/tokens", {"note": "x"}).json()["token"]
    by_token = stranger.request.get(path, headers={"Authorization": f"token {token}"})
    assert by_token.status in (401, 403)
    for context in (own, eve, stranger):
        context.close()
    end(installation, "app")
