"""`up --user` on Docker: broker and hub reach the engine through its socket's group, and nothing more."""

from __future__ import annotations

import pwd
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from allotment_testing.docker_daemon import DockerDaemon
from allotment_testing.installation import Installation
from allotment_testing.other_account import other_account, readable_by_all
from allotment_testing.workloads import prepared_installation


@pytest.fixture
def account() -> Iterator[pwd.struct_passwd]:
    with other_account() as name:
        yield pwd.getpwnam(name)


@pytest.fixture
def installation(daemon: DockerDaemon, account: pwd.struct_passwd) -> Iterator[Installation]:
    """Prepared, not started; closed before its account goes, which can reach the engine's folder."""
    del account
    made = prepared_installation(daemon)
    made.folder.chmod(0o711)
    with tempfile.TemporaryDirectory(prefix="allot-") as stash:
        made.inside = readable_by_all(Path(stash), daemon.socket.parent)
        yield made
        made.close()


def status(pid: int, field: str) -> list[int]:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    [line] = [line for line in lines if line.startswith(f"{field}:")]
    return [int(word) for word in line.split()[1:]]


def test_a_session_of_services_that_are_not_root(
    daemon: DockerDaemon, installation: Installation, account: pwd.struct_passwd
) -> None:
    group, name = daemon.socket.stat().st_gid, account.pw_name
    if group == 0:  # no group `docker` here: then the socket is root's alone, and that is said
        refused = installation.up("--user", name, check=False)
        assert "open to root only; give it a group" in refused.stderr
        daemon.socket.chmod(0o666)
    installation.up("--user", name)
    for service, groups in (("proxy", []), ("broker", [group]), ("hub", [group])):
        pid = installation.pid(service)
        assert status(pid, "Uid") == [account.pw_uid] * 4
        assert status(pid, "Groups") == (groups if group else []), service
    installation.start_session()
    [lease] = installation.broker("leases?live=true").json()
    assert (lease["state"], lease["devices"][0]["profile"]) == ("active", "1g.10gb")
    installation.down("--purge")
    assert not installation.data.exists()
