"""Samples and metrics through the real hub's proxy: who may read them, and a broker that dies meanwhile."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from allotment.client import Client
from allotment.errors import Unreachable
from allotment.samples import Samples, SessionLoad
from allotment.settings import Settings
from allotment.watching import watch
from allotment_hub.host.probes import request
from allotment_testing.installation import Installation

READER = "reader"
ACCESS = "access:services!service=allotment"


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    made = Installation(gpus="sim:1xA100-80GB:whole")
    try:
        made.up("--trust-users")
        assert made.hub("POST", f"/users/{READER}").status == 201
        made.start_session(READER, flavor="gpu-full")
        yield made
    finally:
        made.close()


def token_of(installation: Installation, user: str, scope: str) -> str:
    made = installation.hub("POST", f"/users/{user}/tokens", {"scopes": [scope]})
    assert made.status == 201, made.body
    return str(made.json()["token"])


def test_a_token_for_metrics_reads_the_page_and_nothing_else(installation: Installation) -> None:
    address = f"{installation.connection.broker_url}metrics"
    scraper = token_of(installation, "admin", "read:metrics")
    page = request(address, token=scraper, timeout_s=30)
    assert page.status == 200, page.body
    assert b'allotment_leases{flavor="gpu-full",state="active"} 1.0' in page.body
    assert READER.encode() not in page.body
    assert installation.broker("leases", token=scraper).status == 403
    assert request(address, token=token_of(installation, READER, ACCESS), timeout_s=30).status == 403


def test_the_session_is_seen_at_work_also_after_the_broker_died(installation: Installation) -> None:
    card = installation.broker("fleet").json()["gpus"][0]
    _sim(installation, "load", card["uuid"], "--sm", "70", "--power", "300")
    settings = Settings(
        url=installation.connection.broker_url,
        token=token_of(installation, READER, ACCESS),
        hub_url=None,
        source="the test",
    )
    with Client(settings) as client:
        rounds = watch(client, everybody=False)
        before = _at_work(rounds)
        installation.kill("broker")
        assert isinstance(next(one for one in rounds if isinstance(one, Unreachable)), Unreachable)
        after = _at_work(rounds)
    assert (after.lease, after.since) == (before.lease, before.since)
    assert before.cost is not None
    assert after.cost is not None
    assert after.cost > before.cost  # the broker's absence is no outage


def _at_work(rounds: Iterator[Samples | Unreachable]) -> SessionLoad:
    """The session in the first round that has both its card and its processes."""
    for found in rounds:
        for one in found.leases if isinstance(found, Samples) else ():
            if (
                one.devices[0].sm_percent == 70
                and (one.workload.cpu_cores_used or 0) >= 0
                and one.workload.processes
            ):
                assert (one.user, one.simulated, one.devices[0].power_w) == (READER, True, 300)
                assert one.workload.memory_used_bytes
                return one
    raise AssertionError("the stream ended")


def _sim(installation: Installation, *arguments: str) -> None:
    program = "from allotment.cli import main; main()"
    command = [sys.executable, "-c", program, "sim", *arguments, "--data-dir", str(installation.data)]
    done = subprocess.run(command, capture_output=True, text=True, env=installation.env, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_top_says_it_in_the_terminal(installation: Installation) -> None:
    program = "from allotment.cli import main; main()"
    command = [sys.executable, "-c", program, "top", "--all", "--data-dir", str(installation.data)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=installation.env | {"COLUMNS": "150"}, check=False
    )
    assert done.returncode == 0, done.stderr
    for part in (READER, "70 %", "300 W", "simulated"):
        assert part in done.stdout
    seen = json.loads(subprocess.run([*command, "--json"], capture_output=True, check=True).stdout)
    assert seen["leases"][0]["state"] == "active"
