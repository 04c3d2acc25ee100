"""`allot` on the machine of a real installation, and with a person's own token elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from allotment_testing.installation import Installation

ALLOT = Path(sys.executable).parent / "allot"
START = {"user_options": {"environment": "minimal", "flavor": "gpu-20gb"}}


def allot(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("ALLOTMENT", "JUPYTERHUB"))
    }
    return subprocess.run(
        [str(ALLOT), *arguments],
        env=kept | {"HOME": "/nonexistent", "COLUMNS": "160"} | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture(scope="module")
def session(installation: Installation) -> Installation:
    """The installation with a running session of demo's."""
    answer = installation.hub("POST", "/users/demo/server", START, timeout_s=90)
    assert answer.status == 201, answer.body
    return installation


def test_status_names_services_hardware_and_sessions(session: Installation) -> None:
    done = allot("status", "--data-dir", str(session.data))
    assert done.returncode == 0, done.stdout + done.stderr
    for part in ("hub     runs", "broker  runs", "agent   runs", "engine  runs  local", "simulated", "demo"):
        assert part in done.stdout


def test_gpus_draws_the_leased_slice(session: Installation) -> None:
    done = allot("gpus", "--data-dir", str(session.data))
    assert done.returncode == 0, done.stderr
    assert "2g.20gb" in done.stdout
    assert "█" in done.stdout
    assert "demo" in done.stdout


def test_a_person_sees_their_own_leases_and_no_cards(session: Installation) -> None:
    body = {"auth": {"username": "demo", "password": session.connection.user_password}}
    token = session.hub("POST", "/users/demo/tokens", body).json()["token"]
    theirs = {"ALLOTMENT_URL": session.connection.broker_url, "ALLOTMENT_TOKEN": token}
    leases = json.loads(allot("leases", "--json", **theirs).stdout)
    assert [(lease["user"], lease["state"]) for lease in leases] == [("demo", "active")]
    gpus = allot("gpus", **theirs)
    assert gpus.returncode == 0, gpus.stderr
    assert "Only operators see the cards" in gpus.stdout
    explained = allot("explain", leases[0]["id"], **theirs)
    assert explained.returncode == 0, explained.stderr
    assert leases[0]["id"] in explained.stdout


def test_doctor_and_people_know_this_installation(session: Installation) -> None:
    people = json.loads(allot("people", "list", "--json", "--data-dir", str(session.data)).stdout)["people"]
    assert {person["name"]: person["operator"] for person in people} == {"admin": True, "demo": False}
    findings = json.loads(allot("doctor", "--json", "--data-dir", str(session.data)).stdout)["findings"]
    assert {finding["name"]: finding["level"] for finding in findings}["sessions"] == "ok"


def test_a_stopped_installation_is_exit_2(session: Installation) -> None:
    session.down()
    done = allot("status", "--data-dir", str(session.data))
    assert done.returncode == 2
    assert "Nothing answers" in done.stderr
