"""kill -9 of dockerd under a running session: with live-restore it goes on, without it ends unbilled."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from allotment_testing.docker_daemon import DockerDaemon
from allotment_testing.docker_testbed import running_docker
from allotment_testing.installation import Installation, wait_until
from allotment_testing.notebook import Notebook
from allotment_testing.recovery_checks import Session, slots_taken
from allotment_testing.workloads import docker_installation

FULL = os.environ.get("ALLOTMENT_KILL_MATRIX") == "full"
ALSO = ("nothing", "broker", "hub") if FULL else ("broker",)

# docker-py leaves the socket of a refused connection to the collector
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(scope="module", params=[True, False], ids=["live-restore", "plain"])
def daemon(request: pytest.FixtureRequest) -> Iterator[DockerDaemon]:
    with running_docker("minimal", live_restore=request.param) as running:
        yield running


@pytest.fixture(scope="module")
def installation(daemon: DockerDaemon) -> Iterator[Installation]:
    with docker_installation(daemon) as made:
        yield made


def engine_ok(installation: Installation) -> bool:
    return bool(installation.broker("fleet").json()["engine"]["ok"])


def now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize("also", ALSO)
def test_dockerd_is_killed_and_comes_back(
    daemon: DockerDaemon, installation: Installation, session: Session, also: str
) -> None:
    """`also` is killed while dockerd is down."""
    lease = session.start("gpu-10gb")
    notebook = Notebook(url=session.url, token=session.token)
    kernel = notebook.start_kernel()
    notebook.run(kernel, "x = 41")
    daemon.kill()
    wait_until(lambda: not engine_ok(installation), what="the broker notices")
    noticed = now()
    if also != "nothing":
        installation.restart(also)
    # unknown is not gone: nothing is freed and nobody's session is ended
    assert session.lease(lease["id"])["state"] == "active"
    assert slots_taken(installation) == 1
    daemon.start()
    wait_until(lambda: engine_ok(installation), what="the broker sees the engine again")
    if daemon.live_restore:
        wait_until(lambda: session.reachable, what="the session is reachable")
        assert notebook.run(kernel, "print(x + 1)").strip() == "42"
        after = session.lease(lease["id"])
        assert (after["state"], after["active_at"]) == ("active", lease["active_at"])
        return
    wait_until(lambda: session.lease(lease["id"])["state"] == "ended", what="its lease ends")
    ended = session.lease(lease["id"])
    assert ended["end_reason"] == "engine_stopped"
    assert ended["active_at"] <= ended["stopped_at"] <= noticed, "unbilled from the outage on"
    assert ended["stopped_at"] <= ended["ended_at"]
    wait_until(lambda: not session.refs() and slots_taken(installation) == 0, what="nothing is left")
