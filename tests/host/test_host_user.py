"""`up` as root with `--user`: all but the agent runs as that account, and what it writes is its own."""

from __future__ import annotations

import pwd
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from allotment_hub.host.layout import running_services
from allotment_hub.host.probes import request
from allotment_hub.host.settings import HostSettings
from allotment_testing.installation import Installation, wait_until
from allotment_testing.other_account import other_account, readable_by_all

ALLOT = str(Path(sys.executable).with_name("allot"))
SERVICES = ("proxy", "agent", "broker", "hub")


@pytest.fixture(scope="module")
def account() -> Iterator[pwd.struct_passwd]:
    with other_account() as name:
        yield pwd.getpwnam(name)


@pytest.fixture(scope="module")
def inside() -> Iterator[tuple[str, ...]]:
    stash = tempfile.mkdtemp(prefix="allot-")
    yield readable_by_all(Path(stash))
    shutil.rmtree(stash)


@pytest.fixture
def installation(inside: tuple[str, ...]) -> Iterator[Installation]:
    made = Installation(inside=inside)
    made.folder.chmod(0o711)
    yield made
    made.close()


@pytest.fixture(scope="module")
def running(account: pwd.struct_passwd, inside: tuple[str, ...]) -> Iterator[Installation]:
    made = Installation(inside=inside)
    made.folder.chmod(0o711)
    try:
        done = made.up("--user", account.pw_name)
        assert f"run as {account.pw_name}; only the agent stays root." in done.stdout
        yield made
    finally:
        made.close()


def of_process(pid: int, field: str) -> list[int]:
    """Numbers of a line in /proc/PID/status, such as Uid: real, effective, saved, file system."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{field}:"):
            return [int(word) for word in line.split()[1:]]
    raise AssertionError(f"no {field}")


def session(installation: Installation) -> int:
    """The pid of demo's server; started if there is none."""
    state = installation.start_session()["state"]
    assert isinstance(state, dict)
    return int(state["pid"])


def reachable(installation: Installation) -> bool:
    url = f"{installation.connection.hub_url}/user/demo/api/status"
    return request(url, token=installation.connection.admin_token).ok


def owners(folder: Path) -> set[int]:
    return {path.lstat().st_uid for path in (folder, *folder.rglob("*"))}


def given(installation: Installation) -> list[Path]:
    data = installation.data
    return [data / name for name in ("hub", "broker", "homes", "secrets", "config", "logs/sessions")]


def test_each_process_has_only_the_rights_it_needs(running: Installation, account: pwd.struct_passwd) -> None:
    server = session(running)
    for pid in (running.pid("proxy"), running.pid("broker"), running.pid("hub"), server):
        assert of_process(pid, "Uid") == [account.pw_uid] * 4
        assert of_process(pid, "Gid") == [account.pw_gid] * 4
        assert of_process(pid, "Groups") == []
    for pid in (running.pid("agent"), running.pid("supervisor")):
        assert of_process(pid, "Uid") == [0] * 4
    arguments = Path(f"/proc/{server}/cmdline").read_text(encoding="utf-8")
    assert "--allow-root" not in arguments
    assert running.hub("DELETE", "/users/demo/server").status in (202, 204)


def test_files_are_whose_they_must_be(running: Installation, account: pwd.struct_passwd) -> None:
    data = running.data
    for folder in given(running):
        assert owners(folder) == {account.pw_uid}, folder
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for folder in (data, data / "run", data / "logs", data / "agent"):
        found = folder.stat()
        assert (found.st_uid, found.st_gid) == (0, account.pw_gid)
        assert not found.st_mode & (stat.S_IWGRP | stat.S_IRWXO), folder
    private = running.paths.connection.stat()
    assert (private.st_uid, stat.S_IMODE(private.st_mode)) == (account.pw_uid, 0o600)
    socket = running.paths.agent_socket.stat()
    assert (socket.st_uid, socket.st_gid, stat.S_IMODE(socket.st_mode)) == (0, account.pw_gid, 0o660)


def as_account(
    running: Installation, account: pwd.struct_passwd, *command: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*running.inside, "runuser", "-u", account.pw_name, "--", *command],
        env={**running.env, "HOME": "/nonexistent"},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_account_uses_the_command(running: Installation, account: pwd.struct_passwd) -> None:
    where = ("--data-dir", str(running.data))
    for words in (["status"], ["gpus"], ["people", "list"], ["doctor"]):
        done = as_account(running, account, ALLOT, *words, *where)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout
    before, owner = running.connection.user_password, running.paths.connection.stat()
    renew = ("people", "add", "demo", "--new-password")
    done = as_account(running, account, ALLOT, *renew, *where)
    assert done.stdout.split()[:2] == ["demo", running.connection.user_password], done.stderr
    assert running.connection.user_password != before
    running.connection.save(running.paths.connection)
    after = running.paths.connection.stat()
    assert (after.st_uid, after.st_gid, after.st_mode) == (owner.st_uid, owner.st_gid, owner.st_mode)


def test_the_account_cannot_stop_or_start_what_is_roots(
    running: Installation, account: pwd.struct_passwd
) -> None:
    for module in ("up", "down"):
        argv = (sys.executable, "-m", f"allotment_hub.host.{module}", "--data-dir", str(running.data))
        done = as_account(running, account, *argv)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1, done.stderr
    assert running.ready("hub")


def test_a_killed_supervisor_is_adopted(running: Installation, account: pwd.struct_passwd) -> None:
    before = {name: running.pid(name) for name in SERVICES}
    running.kill("supervisor")
    wait_until(lambda: running.pid("supervisor") == 0, what="the lock is free")
    running.up()
    assert {name: running.pid(name) for name in SERVICES} == before
    running.restart("broker")
    assert of_process(running.pid("broker"), "Uid") == [account.pw_uid] * 4


def test_the_account_is_kept_and_so_is_its_session(running: Installation, account: pwd.struct_passwd) -> None:
    server = session(running)
    assert "1 session goes on" in running.down("--keep-sessions").stdout
    refused = running.up("--user", "root", check=False)
    assert refused.returncode == 2
    assert f"1 session of the account {account.pw_name} must end" in refused.stderr
    settings = HostSettings.load(running.data)
    assert settings is not None
    replace(settings, code="0.0.1-000000000000").save(running.data)
    assert "backed up" in running.up().stdout
    assert of_process(running.pid("hub"), "Uid") == [account.pw_uid] * 4
    assert {uid for folder in given(running) for uid in owners(folder)} == {account.pw_uid}
    wait_until(lambda: reachable(running), what="session reachable", limit_s=30)
    assert of_process(server, "Uid") == [account.pw_uid] * 4
    assert "Stopping the session of demo" in running.down().stdout
    assert running_services(running.paths) == []
    running.up()


def test_another_account_waits_for_the_end_of_this_one(running: Installation) -> None:
    before = running.pid("hub")
    refused = running.up("--user", "root", check=False)
    assert refused.returncode == 2
    assert "as another account; stop it first" in refused.stderr
    assert running.pid("hub") == before


def test_from_root_to_an_account_and_gone(installation: Installation, account: pwd.struct_passwd) -> None:
    said = installation.up().stdout
    assert "All services run as root." in said
    assert "--user NAME" in said
    assert of_process(installation.pid("hub"), "Uid") == [0] * 4
    installation.down()
    installation.up("--user", account.pw_name)
    assert of_process(installation.pid("hub"), "Uid") == [account.pw_uid] * 4
    assert {uid for folder in given(installation) for uid in owners(folder)} == {account.pw_uid}
    server = session(installation)
    installation.down("--purge")
    assert not installation.data.exists()
    assert running_services(installation.paths) == []
    assert not Path(f"/proc/{server}").exists()


def test_an_account_that_cannot_get_there_is_refused(
    installation: Installation, account: pwd.struct_passwd
) -> None:
    installation.folder.chmod(0o700)
    done = installation.up("--user", account.pw_name, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"up: The account {account.pw_name} cannot read {installation.folder}")
    assert len(done.stderr.splitlines()) == 1
    assert not installation.data.exists()
