"""From inside a real session, through its kernel and with its own token: what it learns and may do."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from allotment_testing.installation import Installation
from allotment_testing.notebook import Notebook
from allotment_testing.recovery_checks import Session
from allotment_testing.workloads import Containers

CALL = """
import json, os, urllib.error, urllib.request

def call(method, url, body=None):
    request = urllib.request.Request(url, method=method)
    request.data = None if body is None else json.dumps(body).encode()
    request.add_header("Authorization", "token " + os.environ["JUPYTERHUB_API_TOKEN"])
    request.add_header("Idempotency-Key", "a" * 32)
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            status, text = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
    except OSError as error:
        status, text = type(error).__name__, b""
    try:
        print(json.dumps([status, json.loads(text)]))
    except ValueError:
        print(json.dumps([status, None]))
"""


@dataclass
class Inside:
    """A kernel in the session of `me`; `lease` is its own, `theirs` another person's active one."""

    notebook: Notebook
    kernel: str
    lease: dict[str, Any]
    theirs: dict[str, Any]

    def run(self, code: str) -> str:
        return self.notebook.run(self.kernel, code).strip()

    def broker(self, method: str, path: str, body: object = None) -> tuple[Any, Any]:
        return self._call(method, f"os.environ['ALLOTMENT_URL'] + {f'api/v1/{path}'!r}", body)

    def hub(self, method: str, path: str, body: object = None) -> tuple[Any, Any]:
        return self._call(method, f"os.environ['JUPYTERHUB_API_URL'] + {path!r}", body)

    def _call(self, method: str, url: str, body: object) -> tuple[Any, Any]:
        answer = self.run(f"{CALL}\ncall({method!r}, {url}, {body!r})")
        status, told = json.loads(answer)
        return status, told


@pytest.fixture(scope="module")
def inside(installation: Installation, containers: Containers) -> Inside:
    assert installation.hub("POST", "/users/ann").status == 201
    other = Session(installation=installation, user="ann", workloads=containers)
    mine = Session(installation=installation, workloads=containers)
    other.ask("gpu-10gb")
    lease = mine.start("gpu-10gb")
    theirs = other.start("gpu-10gb")
    notebook = Notebook(url=mine.url, token=mine.token)
    return Inside(notebook, notebook.start_kernel(), lease, theirs)


def test_a_kernel_sees_exactly_its_device(inside: Inside) -> None:
    """What the stand-in driver wrote into the container, read by the person's own code."""
    code = "print(open('/run/nvidia-devices').read(), __import__('os').environ['ALLOTMENT_LEASE'])"
    assert inside.run(code).split() == [inside.lease["devices"][0]["uuid"], inside.lease["id"]]


def test_own_lease_is_visible_and_the_only_one(inside: Inside) -> None:
    status, lease = inside.broker("GET", f"leases/{inside.lease['id']}")
    assert (status, lease["state"], lease["user"]) == (200, "active", "demo")
    status, leases = inside.broker("GET", "leases")
    assert (status, [one["id"] for one in leases]) == (200, [inside.lease["id"]])
    status, me = inside.broker("GET", "me")
    assert (status, me["name"]) == (200, "demo")


@pytest.mark.parametrize("end", ["", "/explain", "/events"])
def test_others_leases_look_like_unknown_ones(inside: Inside, end: str) -> None:
    status, theirs = inside.broker("GET", f"leases/{inside.theirs['id']}{end}")
    unknown_status, unknown = inside.broker("GET", f"leases/{'0' * len(inside.theirs['id'])}{end}")
    assert (status, unknown_status) == (404, 404)
    assert {**theirs, "instance": None} == {**unknown, "instance": None}


def test_others_sessions_cannot_be_ended_or_listed(inside: Inside, containers: Containers) -> None:
    assert inside.broker("DELETE", f"leases/{inside.theirs['id']}?reason=stopped")[0] == 404
    status, leases = inside.broker("GET", "leases?user=ann")
    assert status == 403 or inside.theirs["id"] not in json.dumps(leases)
    assert containers.of(inside.theirs["id"])["State"]["Running"]


def test_a_notebooks_token_makes_no_lease(inside: Inside) -> None:
    asked = {"user": "demo", "server": "second", "environment": "minimal", "flavor": "gpu-10gb"}
    status, told = inside.broker("POST", "leases", asked)
    assert (status, told["code"]) == (403, "not_allowed")
    own = f"leases/{inside.lease['id']}"
    for step, body in (
        ("renew", None),
        ("confirm", {"engine_ref": "mine"}),
        ("active", {"devices_seen": [inside.theirs["devices"][0]["uuid"]]}),
    ):
        assert inside.broker("PUT", f"{own}/{step}", body)[0] == 403
    assert inside.broker("GET", own)[1]["devices"] == inside.lease["devices"]


def test_the_fleet_is_for_operators(inside: Inside) -> None:
    status, told = inside.broker("GET", "fleet")
    assert (status, told["code"]) == (403, "not_allowed")


def test_a_notebooks_token_starts_no_server_and_opens_no_others(inside: Inside) -> None:
    assert inside.hub("POST", "/users/demo/servers/second", {})[0] in (403, 404)
    assert inside.hub("GET", "/users/ann")[0] in (403, 404)
    assert inside.hub("POST", "/users/demo/tokens", {})[0] in (403, 404)
    assert inside.hub("GET", "/users")[0] == 403


def test_variables_of_another_lease_give_nothing(inside: Inside) -> None:
    """What a session says of itself is not what the broker believes."""
    forged = f"import os; os.environ['ALLOTMENT_LEASE'] = {inside.theirs['id']!r}; "
    forged += "os.environ['ALLOTMENT_DEVICES'] = 'MIG-all'; os.environ['JUPYTERHUB_USER'] = 'ann'"
    assert inside.run(forged) == ""
    status, leases = inside.broker("GET", "leases")
    assert (status, [one["id"] for one in leases]) == (200, [inside.lease["id"]])
    assert inside.broker("GET", f"leases/{inside.theirs['id']}")[0] == 404


def test_labels_cannot_be_made(inside: Inside, installation: Installation) -> None:
    """They are the engine's, and neither it nor the agent can be spoken to from here."""
    sockets = ["/var/run/docker.sock", "/run/docker.sock", str(installation.paths.agent_socket)]
    code = f"import os; print([path for path in {sockets!r} if os.path.exists(path)])"
    assert inside.run(code) == "[]"
    find = "import subprocess; print(subprocess.run(['find', '/', '-xdev', '-type', 's'], "
    find += "capture_output=True, text=True).stdout)"
    assert [path for path in inside.run(find).split() if not path.startswith("/run/allotment/")] == []


def test_links_in_a_home_lead_nowhere(
    inside: Inside, installation: Installation, containers: Containers
) -> None:
    """What a home points at is looked up in the container, by the person; the host opens nothing of it."""
    secret = installation.paths.secrets / "admin"
    code = f"""
import pathlib
home = pathlib.Path.home()
(home / "stolen").symlink_to({str(secret)!r})
(home / "secrets").symlink_to({str(secret.parent)!r})
(home / "root").symlink_to("/")
print((home / "stolen").exists(), (home / "secrets").exists())
"""
    assert inside.run(code) == "False False"
    again = Session(installation=installation, workloads=containers)
    again.stop()
    lease = again.start("gpu-10gb")
    look = "cat ~/stolen ~/secrets/admin ~/root/etc/shadow ~/root/proc/1/environ 2>&1; echo end"
    told = containers.inside(lease["id"], "sh", "-c", look)
    assert told.count("No such file") == 2
    assert "Permission denied" in told
    assert secret.read_text().strip() not in told
