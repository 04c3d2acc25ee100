"""`allot` on the machine of a real installation, and with a person's own token elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from decimal import ROUND_HALF_EVEN, Decimal
from pathlib import Path
from typing import Any

import pytest
from allotment_testing.installation import Installation, wait_until

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
    assert answer.status in {201, 202}, answer.body  # 202: it takes a little longer on a busy machine

    def active() -> bool:
        return [one["state"] for one in installation.broker("leases?user=demo").json()] == ["active"]

    wait_until(active, what="the session is active", limit_s=120)
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


def test_what_a_session_cost_is_in_the_books(session: Installation) -> None:
    """From the hub's stop to an entry, and an operator who gives some of it back."""
    body = {"auth": {"username": "demo", "password": session.connection.user_password}}
    token = session.hub("POST", "/users/demo/tokens", body).json()["token"]
    theirs = {"ALLOTMENT_URL": session.connection.broker_url, "ALLOTMENT_TOKEN": token}

    def usage(*more: str) -> Any:
        done = allot("usage", "--json", *more, **theirs)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    running = usage()
    assert Decimal(running["total"]) == len(running["entries"]) == 0
    assert Decimal(running["running"]) > 0
    assert session.hub("DELETE", "/users/demo/server").status in {202, 204}
    wait_until(lambda: bool(usage()["entries"]), what="an entry", limit_s=60)
    report = usage("--by", "day,flavor")
    (entry,) = report["entries"]
    price = Decimal("0.80") * Decimal(entry["seconds"]) / 3600
    assert Decimal(entry["amount"]) == price.quantize(Decimal("0.000001"), ROUND_HALF_EVEN) > 0
    assert Decimal(entry["gpu_seconds"]) == Decimal(entry["seconds"]) / 4
    assert Decimal(report["total"]) == Decimal(entry["amount"]) == Decimal(report["rows"][0]["amount"])
    assert report["rows"][0]["key"]["flavor"] == "gpu-20gb"
    back = allot(
        "refund", entry["lease"], entry["amount"], "--because", "A try.", "--data-dir", str(session.data)
    )
    assert back.returncode == 0, back.stderr
    assert Decimal(usage()["total"]) == 0
    assert allot("refund", entry["lease"], "1", "--because", "x", **theirs).returncode == 1


def test_a_stopped_installation_is_exit_2(session: Installation) -> None:
    session.down()
    done = allot("status", "--data-dir", str(session.data))
    assert done.returncode == 2
    assert "Nothing answers" in done.stderr
