"""`up` on a bare data directory: ready, private, refused with one sentence, nothing half-started."""

from __future__ import annotations

import json
import socket
import stat
import sys
from pathlib import Path

import httpx
from allotment_hub.host.layout import running_services
from allotment_testing.installation import Installation
from allotment_testing.terminal import type_in_terminal


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def nothing_runs(installation: Installation) -> bool:
    return not running_services(installation.paths) and installation.pid("supervisor") == 0


def test_ready_means_that_a_session_starts(running: Installation) -> None:
    running.start_session(server="first")
    status = httpx.get(
        f"{running.connection.hub_url}/user/demo/first/api/status",
        headers={"Authorization": f"token {running.connection.admin_token}"},
    )
    assert status.status_code == 200
    [lease] = running.broker("leases?live=true").json()
    assert (lease["state"], lease["devices"][0]["profile"]) == ("active", "1g.10gb")
    server, token = f"{running.connection.hub_url}/user/demo/first/", running.connection.admin_token
    found = type_in_terminal(server, token, "command -v allot; command -v python")
    for name in ("allot", "python"):
        assert str(Path(sys.executable).with_name(name)) in found, "a login shell would lose them"
    assert running.hub("DELETE", "/users/demo/servers/first").status in (202, 204)


def test_connection_names_everything_and_is_private(running: Installation) -> None:
    found = json.loads(running.paths.connection.read_text(encoding="utf-8"))
    assert sorted(found) == [
        "admin_password",
        "admin_token",
        "admin_user",
        "broker_url",
        "hub_url",
        "user",
        "user_password",
    ]
    assert found["broker_url"] == f"{found['hub_url']}/services/allotment/"
    private = [running.paths.connection, running.paths.runtime, running.data / "run" / "host.json"]
    private += list(running.paths.secrets.iterdir())
    assert {mode(path) for path in private} == {0o600}
    assert {mode(path) for path in (running.data, running.paths.secrets, running.paths.logs)} == {0o700}


def test_no_secret_stands_in_an_argument_or_a_log(running: Installation) -> None:
    secrets = [path.read_text(encoding="utf-8").strip() for path in running.paths.secrets.iterdir()]
    secrets += [running.connection.admin_password, running.connection.user_password]
    for service in ("proxy", "agent", "broker", "hub", "supervisor"):
        arguments = Path(f"/proc/{running.pid(service)}/cmdline").read_text(encoding="utf-8")
        log = (running.paths.logs / f"{service}.log").read_text(encoding="utf-8")
        assert not [secret for secret in secrets if secret in arguments or secret in log], service


def test_both_accounts_sign_in_and_nobody_else_can(running: Installation) -> None:
    connection = running.connection
    for name, password, expected in (
        (connection.user, connection.user_password, 302),
        (connection.admin_user, connection.admin_password, 302),
        (connection.user, connection.admin_password, 403),
        ("stranger", connection.user_password, 403),
        (connection.user, "x" * 200, 403),
    ):
        with httpx.Client(base_url=connection.hub_url) as browser:
            browser.get("/hub/login")
            xsrf = next(cookie.value for cookie in browser.cookies.jar if cookie.name == "_xsrf")
            form = {"username": name, "password": password, "_xsrf": xsrf or ""}
            assert browser.post("/hub/login", data=form).status_code == expected, name
            assert browser.get("/hub/signup").status_code == 404


def test_a_second_up_says_that_it_runs(running: Installation) -> None:
    before = {name: running.pid(name) for name in ("supervisor", "hub", "broker")}
    done = running.up()
    assert f"runs already: {running.connection.hub_url}" in done.stdout
    assert before == {name: running.pid(name) for name in before}


def test_the_broker_has_the_least_scopes_that_work(running: Installation) -> None:
    token = (running.paths.secrets / "broker-service").read_text(encoding="utf-8").strip()
    model = running.hub("GET", "/users/demo", token=token).json()
    assert {"admin", "groups", "servers"} <= set(model)
    assert running.hub("GET", "/users/demo/tokens", token=token).status == 403
    assert running.hub("POST", "/users/demo/server", {}, token=token).status == 403
    scopes = set(running.hub("GET", "/user", token=token).json()["scopes"])
    assert not [scope for scope in scopes if scope.startswith(("tokens", "admin:"))]


def test_a_busy_port_is_refused_and_nothing_starts(installation: Installation) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", installation.port))
        busy.listen(1)
        done = installation.up(check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("up: Port ")
    assert "in use by another program" in done.stderr
    assert nothing_runs(installation)
    assert not installation.paths.connection.exists()


def test_wrong_configuration_is_listed_whole_and_nothing_starts(installation: Installation) -> None:
    installation.paths.site.parent.mkdir(parents=True)
    (installation.data / "run").mkdir()
    installation.paths.site.write_text("titel: x\npolicies: {sessions_per_person: 0}\n", encoding="utf-8")
    done = installation.up(check=False)
    assert done.returncode == 2
    assert f"{installation.paths.site}:1: titel: there is no such key" in done.stderr
    assert f"{installation.paths.site}:2: policies.sessions_per_person" in done.stderr
    assert nothing_runs(installation)


def test_misspelt_hardware_is_refused(installation: Installation) -> None:
    done = installation.up("--gpus", "sim:2xB1000", check=False)
    assert done.returncode == 2
    assert "no simulated GPU is called" in done.stderr
    assert nothing_runs(installation)


def test_a_service_that_cannot_run_leaves_nothing_behind(installation: Installation) -> None:
    """The broker's database cannot be opened: `up` says so and takes the rest down again."""
    (installation.data / "run").mkdir(parents=True)
    installation.paths.broker_database.mkdir(parents=True)
    done = installation.up(check=False)
    assert done.returncode == 2
    assert "broker" in done.stderr
    assert str(installation.paths.logs) in done.stderr
    assert nothing_runs(installation)
    assert not installation.paths.connection.exists()
