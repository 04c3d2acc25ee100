"""Doors of a session in a container: git links, Notebook, web apps that nobody else reaches."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import httpx
import pytest
from allotment_testing.installation import Installation, wait_until
from allotment_testing.workloads import Containers

REPO = "https://git.example.org/ann/course.git"
APP_PORT = 6006
PRIVATE = "a private board"
MAKE_REPOSITORY = f"""
set -e
mkdir -p ~/upstream && cd ~/upstream
git init -q -b main . && echo '# Lesson' > start.md && git add .
git -c user.name=Ann -c user.email=ann@example.org commit -q -m Begin
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
def lease(installation: Installation) -> dict[str, Any]:
    """Of a session that was asked for with a repository."""
    options = {"environment": "minimal", "flavor": "cpu", "app": "notebook", "repo": REPO, "branch": "main"}
    reply = installation.hub("POST", "/users/demo/server", {"user_options": options})
    assert reply.status in (201, 202), reply.body
    found: list[dict[str, Any]] = []

    def active() -> bool:
        found[:] = installation.broker("leases?user=demo&limit=1").json()
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
