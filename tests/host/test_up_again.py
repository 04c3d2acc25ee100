"""Later starts: adoption, restarts, updates, the end; sessions go on through all of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
from allotment_hub.host.layout import running_services
from allotment_hub.host.probes import request
from allotment_hub.host.settings import HostSettings
from allotment_testing.installation import Installation, wait_until

SERVICES = ("proxy", "agent", "broker", "hub")


def start_session(installation: Installation) -> int:
    """A running session of demo; the pid of its server."""
    state = installation.start_session()["state"]
    assert isinstance(state, dict)
    return int(state["pid"])


def reachable(installation: Installation) -> bool:
    url = f"{installation.connection.hub_url}/user/demo/api/status"
    return request(url, token=installation.connection.admin_token).ok


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_services_come_back_and_the_session_goes_on(running: Installation) -> None:
    server = start_session(running)
    for service in SERVICES:
        running.restart(service)
        wait_until(lambda: reachable(running), what=f"session reachable after {service} died", limit_s=30)
    assert alive(server)
    [lease] = running.broker("leases?live=true").json()
    assert lease["state"] == "active"
    assert running.hub("DELETE", "/users/demo/server").status in (202, 204)


def test_a_killed_supervisor_is_adopted_by_the_next_up(running: Installation) -> None:
    before = {name: running.pid(name) for name in SERVICES}
    killed = running.kill("supervisor")
    wait_until(lambda: running.pid("supervisor") == 0, what="the lock is free")
    running.up()
    assert running.pid("supervisor") not in (0, killed)
    assert {name: running.pid(name) for name in SERVICES} == before
    running.restart("agent")


def test_down_keeps_sessions_if_asked_and_up_finds_them(running: Installation) -> None:
    server = start_session(running)
    done = running.down("--keep-sessions")
    assert "1 session goes on" in done.stdout
    assert running_services(running.paths) == []
    assert alive(server)
    running.up()
    wait_until(lambda: reachable(running), what="session reachable after a restart of everything", limit_s=30)
    assert alive(server)
    [lease] = running.broker("leases?live=true").json()
    assert lease["state"] == "active"


def test_an_update_restarts_the_services_backs_up_and_keeps_sessions(running: Installation) -> None:
    if not reachable(running):
        start_session(running)
    before = running.pid("hub")
    settings = HostSettings.load(running.data)
    assert settings is not None
    replace(settings, code="0.0.1-000000000000").save(running.data)
    done = running.up()
    assert "Updating" in done.stdout
    assert running.pid("hub") != before
    [folder] = list((running.data / "backups").glob("*-0.0.1-000000000000"))
    assert {path.name for path in folder.iterdir()} >= {"jupyterhub.sqlite", "broker.sqlite"}
    wait_until(lambda: reachable(running), what="session reachable after the update", limit_s=30)


def test_down_ends_sessions_and_is_repeatable(running: Installation) -> None:
    if not reachable(running):
        start_session(running)
    done = running.down()
    assert "Stopping the session of demo" in done.stdout
    assert running_services(running.paths) == []
    again = running.down()
    assert "No services run" in again.stdout
    assert running.connection.user_password not in running.up().stdout
    leases = running.broker("leases?limit=50").json()
    assert {lease["state"] for lease in leases} == {"ended"}


def test_purge_removes_everything(installation: Installation) -> None:
    installation.up("--gpus", "none")
    installation.down("--purge")
    assert not installation.data.exists()
    assert running_services(installation.paths) == []


def in_the_foreground(installation: Installation, *, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
    argv = [word for word in installation.arguments() if word not in ("--detach", "--yes")]
    return subprocess.Popen(
        [sys.executable, "-m", "allotment_hub.host.up", *argv],
        env=installation.env,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_in_the_foreground_a_signal_stops_the_services(
    installation: Installation, number: signal.Signals
) -> None:
    child = in_the_foreground(installation)
    try:
        wait_until(installation.paths.connection.exists, what="ready", limit_s=120)
        server = start_session(installation)
        child.send_signal(number)
        out, _ = child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait()
    assert child.returncode == 0
    assert "1 session goes on" in out
    assert running_services(installation.paths) == []
    assert alive(server)


def test_a_broken_configuration_keeps_nobody_from_stopping(installation: Installation) -> None:
    child = in_the_foreground(installation)
    try:
        wait_until(installation.paths.connection.exists, what="ready", limit_s=120)
        installation.paths.site.write_text("title: [\n", encoding="utf-8")
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait()
    assert child.returncode == 0
    assert running_services(installation.paths) == []


def test_a_terminal_that_was_closed_stops_the_services(installation: Installation) -> None:
    ours, theirs = os.openpty()
    child = in_the_foreground(installation, stdout=theirs)
    os.close(theirs)
    try:
        shown = b""
        while b"Ctrl-C" not in shown:
            shown += os.read(ours, 4096)
        os.close(ours)
        child.send_signal(signal.SIGHUP)
        child.wait(timeout=60)
    finally:
        child.kill()
        child.wait()
    assert running_services(installation.paths) == []
