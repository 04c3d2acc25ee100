"""From form or link to a session in a container: folders, data, git, and doors closed to others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import httpx
import pytest
from allotment_testing.chromium import CHROMIUM
from allotment_testing.docker_daemon import DockerDaemon
from allotment_testing.installation import Installation, wait_until
from allotment_testing.workloads import Containers, prepared_installation
from playwright.sync_api import Page, expect, sync_playwright

SHOTS = Path(__file__).resolve().parents[2] / ".cache" / "screenshots"
SLOW_MS = 120_000

REPO = "https://git.example.org/ann/course.git"
APP_PORT = 6006
PRIVATE = "a private board"
MAKE_REPOSITORY = f"""
set -e
mkdir -p ~/upstream && cd ~/upstream
git init -q -b main . && echo '# Lesson' > start.md && git add .
git -c user.name=Ann -c user.email=ann@example.org commit -q --allow-empty -m Begin
git config --global url."file://$HOME/upstream".insteadOf {REPO}
"""
START_APP = f"""
mkdir -p /tmp/board && echo '{PRIVATE}' > /tmp/board/index.html
setsid python3 -m http.server {APP_PORT} --bind 127.0.0.1 --directory /tmp/board >/dev/null 2>&1 &
for _ in $(seq 100); do
  python3 -c "import socket; socket.create_connection(('127.0.0.1', {APP_PORT}))" 2>/dev/null && exit 0
  sleep 0.1
done
exit 1
"""


@pytest.fixture(scope="module")
def installation(daemon: DockerDaemon) -> Iterator[Installation]:
    """With a shared folder, a dataset from a folder of this machine, and a limit for homes."""
    made = prepared_installation(daemon)
    course, published = made.folder / "course", made.folder / "published"
    for folder in (course, published):
        folder.mkdir(mode=0o755)
    made.folder.chmod(0o755)  # sessions run as somebody else
    (course / "read.me").write_text("lesson one\n")
    (published / "digits.csv").write_text("1,2,3\n")
    with made.paths.site.open("a") as site:
        site.write(f"mounts: [{{name: course, title: Course files, path: {course}}}]\n")
        site.write(f"datasets: {{allow_paths: [{published}]}}\n")
        site.write("homes: {quota_gib: 10}\n")
    try:
        made.up()
        register(
            made, "digits", {"source": str(published / "digits.csv"), "title": "Digits", "licence": "CC0"}
        )
        yield made
    finally:
        made.close()


def register(installation: Installation, name: str, body: dict[str, Any]) -> None:
    answer = httpx.put(
        f"{installation.connection.broker_url}api/v1/registry/datasets/{name}",
        json=body,
        headers={"Authorization": f"token {installation.connection.admin_token}"},
    )
    assert answer.status_code == 200, answer.text


@pytest.fixture(scope="module")
def lease(installation: Installation) -> dict[str, Any]:
    """Of a session that was asked for with a repository."""
    options = {"environment": "minimal", "flavor": "cpu", "app": "notebook", "repo": REPO, "branch": "main"}
    reply = installation.hub("POST", "/users/demo/server", {"user_options": options})
    assert reply.status in (201, 202), reply.body
    found: list[dict[str, Any]] = []

    def active() -> bool:
        found[:] = installation.broker("leases?user=demo&server=&limit=1").json()
        return bool(found) and found[0]["state"] == "active"

    wait_until(active, what="the session runs", limit_s=90)
    return found[0]


@pytest.fixture(scope="module")
def at(installation: Installation, lease: dict[str, Any]) -> str:
    return f"{installation.connection.hub_url}/user/demo"


@pytest.fixture(scope="module")
def own(installation: Installation) -> dict[str, str]:
    """A header with the demo person's own token."""
    return token_of(installation, "demo")


def token_of(installation: Installation, name: str) -> dict[str, str]:
    made = installation.hub("POST", f"/users/{name}/tokens", {"note": "tests"})
    return {"Authorization": f"token {made.json()['token']}"}


def test_it_opens_where_it_was_asked_to(at: str, own: dict[str, str]) -> None:
    answer = httpx.get(f"{at}/", headers=own)
    where = urlsplit(answer.headers["location"])
    assert where.path == "/user/demo/git-pull"
    asked = parse_qs(where.query)
    assert (asked["repo"], asked["branch"], asked["targetpath"]) == ([REPO], ["main"], ["course"])
    assert asked["urlpath"] == ["tree/course"]


def test_a_repository_is_pulled_into_the_home(
    at: str, own: dict[str, str], lease: dict[str, Any], containers: Containers
) -> None:
    containers.inside(lease["id"], "bash", "-c", MAKE_REPOSITORY)
    page = httpx.get(f"{at}/git-pull", params={"repo": REPO, "targetpath": "course"}, headers=own)
    assert page.status_code == 200
    assert "git-pull" in page.text or "gitsync" in page.text
    asked = f"repo={quote(REPO, safe='')}&branch=main&targetpath=course"
    told = httpx.get(f"{at}/git-pull/api?{asked}", headers=own, timeout=60).text
    assert '"phase": "finished"' in told, told
    assert containers.inside(lease["id"], "bash", "-c", "cat ~/course/start.md") == "# Lesson\n"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (".ipython/profile_default/startup", "hidden folder"),
        ("course/.git/hooks", "hidden folder"),
        ("../../tmp/x", "hidden folder"),
        ("/tmp/x", "outside of your home"),
    ],
)
def test_a_link_plants_nothing_where_programs_look(
    at: str, own: dict[str, str], lease: dict[str, Any], containers: Containers, target: str, said: str
) -> None:
    containers.inside(lease["id"], "bash", "-c", MAKE_REPOSITORY)
    asked = f"repo={quote(REPO, safe='')}&branch=main&targetpath={quote(target, safe='')}"
    told = httpx.get(f"{at}/git-pull/api?{asked}", headers=own, timeout=60).text
    assert '"phase": "error"' in told
    assert said in told
    there = f"test ! -e ~/'{target}/start.md' -a ! -e '{target}/start.md'"
    containers.inside(lease["id"], "bash", "-c", there)


@pytest.mark.parametrize("path", ["lab", "tree", "tree/course", "terminals/1"])
def test_each_door_opens(at: str, own: dict[str, str], path: str) -> None:
    answer = httpx.get(f"{at}/{path}", headers=own, follow_redirects=True)
    assert answer.status_code == 200
    assert "jupyter-config-data" in answer.text


def test_a_web_app_is_its_person_s_alone(
    installation: Installation, at: str, own: dict[str, str], lease: dict[str, Any], containers: Containers
) -> None:
    containers.inside(lease["id"], "bash", "-c", START_APP)
    app = f"{at}/proxy/{APP_PORT}/"
    assert httpx.get(app, headers=own).text.strip() == PRIVATE
    assert installation.hub("POST", "/users/eve").status == 201
    eve = httpx.get(app, headers=token_of(installation, "eve"))
    assert eve.status_code == 403
    nobody = httpx.get(app)
    assert nobody.status_code in (302, 403)
    for answer in (eve, nobody, httpx.get(app, follow_redirects=True)):
        assert PRIVATE not in answer.text


def test_the_way_to_web_apps_leads_to_no_other_machine(
    at: str, own: dict[str, str], lease: dict[str, Any], containers: Containers
) -> None:
    """Else anybody who may open the server could walk on from its network."""
    networks = containers.of(lease["id"])["NetworkSettings"]["Networks"]
    gateway = next(iter(networks.values()))["Gateway"]
    for host in (gateway, "192.0.2.1", "example.org"):
        answer = httpx.get(f"{at}/proxy/{host}:80/", headers=own)
        assert answer.status_code == 403, host


def shoot(page: Page, name: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": 1100, "height": height})
    page.screenshot(path=SHOTS / f"{name}.png", full_page=True)
    page.set_viewport_size({"width": 1280, "height": 900})


def sign_in(page: Page, installation: Installation) -> None:
    there = installation.connection
    page.goto(f"{there.hub_url}/hub/login?next=/hub/spawn/demo/form")
    page.fill("input[name=username]", there.user)
    page.fill("input[name=password]", there.user_password)
    page.click("input[type=submit], button[type=submit]")
    page.wait_for_url(re.compile("/hub/spawn"))


def lease_of(installation: Installation) -> dict[str, Any]:
    found: list[dict[str, Any]] = installation.broker("leases?user=demo&server=form&limit=1").json()
    return found[0]


def test_what_is_ticked_on_the_form_is_there_in_the_session(
    installation: Installation, containers: Containers
) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(**CHROMIUM)
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(SLOW_MS)
        sign_in(page, installation)
        expect(page.locator("[data-mount=course]")).to_contain_text("/data/course")
        expect(page.locator("[data-mount=course]")).to_contain_text("read only")
        expect(page.locator(".allot-home")).to_contain_text("Your home")
        data = page.locator("[data-dataset=digits]")
        expect(data).to_contain_text("Fetched before your session starts")
        data.locator("input").check()
        page.locator("input[name=flavor][value=cpu]").check(force=True)
        page.locator("input[name=app][value=notebook]").check(force=True)
        shoot(page, "docker-form")
        page.click("#allot-start")
        page.wait_for_url(re.compile("/user/demo/form/tree"), timeout=SLOW_MS)
        browser.close()
    lease = lease_of(installation)
    assert lease["datasets"] == ["digits"]
    assert lease["version"]
    assert containers.inside(lease["id"], "cat", "/data/course/read.me") == "lesson one\n"
    found = containers.inside(lease["id"], "find", "/datasets/digits", "-type", "f").split()
    assert [Path(one).name for one in found] == ["digits.csv"]
    assert containers.inside(lease["id"], "cat", found[0]) == "1,2,3\n"
    for target in ("/data/course/x", "/datasets/digits/x"):
        with pytest.raises(AssertionError, match="Read-only file system"):
            containers.inside(lease["id"], "touch", target)


def test_the_home_is_measured_and_told_with_its_limit(
    installation: Installation, lease: dict[str, Any], own: dict[str, str]
) -> None:
    broker = f"{installation.connection.broker_url}api/v1"
    home = httpx.post(f"{broker}/homes/demo/measure", headers=own, timeout=90).json()
    assert home["used_bytes"] > 0
    assert home["limit_bytes"] == 10 * 2**30
    assert httpx.get(f"{broker}/homes/me", headers=own).json() == home
