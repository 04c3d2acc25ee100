"""Shared folders and datasets inside real sessions: who sees what, who may write, and no way around it."""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from allotment.cli import build_app
from allotment_testing.docker_daemon import DockerDaemon
from allotment_testing.file_server import FileServer, file_server
from allotment_testing.installation import Installation, wait_until
from allotment_testing.workloads import Containers, prepared_installation
from typer.testing import CliRunner

BODY = os.urandom(1_500_000)
SITE = """
mounts:
  - {{name: course, title: The course, path: {srv}/course}}
  - {{name: shared, path: {srv}/shared, write: [team]}}
  - {{name: staff, path: {srv}/staff, read: [staff]}}
datasets: {{allow_hosts: ['{host}'], allow_paths: [{srv}/published]}}
disk: {{floor_gib: 0}}
"""


@pytest.fixture(scope="module")
def srv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders as an operator makes them: sessions are uid 1000, gid 100."""
    top = tmp_path_factory.mktemp("srv")
    for name in ("course", "shared", "staff", "published/set"):
        (top / name).mkdir(parents=True)
    (top / "course/notes.txt").write_text("notes\n")
    (top / "staff/marks.txt").write_text("marks")
    (top / "published/set/a.csv").write_text("1,2\n")
    os.chown(top / "shared", 1000, 100)
    with tarfile.open(top / "packed.tar.gz", "w:gz") as packed:
        packed.add(top / "published/set", arcname="set")
    return top


@pytest.fixture(scope="module")
def server(daemon: DockerDaemon, srv: Path) -> Iterator[FileServer]:
    """In the engine's own network, as the broker is."""
    with file_server(**{"iris.bin": BODY, "packed.tar.gz": (srv / "packed.tar.gz").read_bytes()}) as served:
        yield served


@pytest.fixture(scope="module")
def installation(daemon: DockerDaemon, srv: Path, server: FileServer) -> Iterator[Installation]:
    made = prepared_installation(daemon)
    with made.paths.site.open("a") as site:
        site.write(SITE.format(srv=srv, host=server.host))
    try:
        made.up()
        for name in ("ann", "bob"):
            assert made.hub("POST", f"/users/{name}").status == 201
        assert made.hub("POST", "/groups/team").status == 201
        assert made.hub("POST", "/groups/team/users", {"users": ["bob"]}).status == 200
        yield made
    finally:
        made.close()


def started(installation: Installation, user: str, *datasets: str) -> str:
    options = {"environment": "minimal", "flavor": "cpu", "datasets": list(datasets)}
    answer = installation.hub("POST", f"/users/{user}/server", {"user_options": options})
    assert answer.status in (201, 202), answer.body
    found: list[dict[str, Any]] = []

    def active() -> bool:
        found[:] = installation.broker(f"leases?user={user}&live=true").json()
        return bool(found) and found[0]["state"] == "active"

    wait_until(active, what=f"{user} runs", limit_s=120)
    return str(found[0]["id"])


def stopped(installation: Installation, user: str) -> None:
    assert installation.hub("DELETE", f"/users/{user}/server").status in (202, 204)
    wait_until(
        lambda: not installation.broker(f"leases?user={user}&live=true").json(), what=f"{user} is gone"
    )


def allot(installation: Installation, *words: str) -> None:
    done = CliRunner().invoke(build_app(), ["data", *words, "--data-dir", str(installation.data)])
    assert done.exit_code == 0, done.output


def shell(containers: Containers, lease: str, script: str) -> str:
    """What it prints; a command that fails says so."""
    return containers.inside(lease, "sh", "-c", f"({script}) 2>&1 || echo REFUSED")


def test_data_is_there_and_read_only_whatever_is_tried(
    containers: Containers, installation: Installation, server: FileServer, srv: Path
) -> None:
    allot(installation, "add", "iris", server.url("/iris.bin"), "--sha256", hashlib.sha256(BODY).hexdigest())
    allot(installation, "add", "packed", server.url("/packed.tar.gz"), "--unpack")
    allot(installation, "add", "published", str(srv / "published/set"))
    lease = started(installation, "ann", "iris", "packed", "published")
    sums = shell(
        containers,
        lease,
        "sha256sum < /datasets/iris/iris.bin; cat /datasets/*/set/a.csv /datasets/published/a.csv",
    )
    assert sums.split() == [hashlib.sha256(BODY).hexdigest(), "-", "1,2", "1,2"]
    for script in (
        "echo x > /datasets/iris/new",
        "echo x >> /datasets/iris/iris.bin",
        "rm -f /datasets/iris/iris.bin",
        "chmod 777 /datasets/iris",
        "ln /datasets/iris/iris.bin /datasets/packed/iris.bin",
        "ln /datasets/iris/iris.bin /home/jovyan/iris.bin",
        "mount -o remount,rw /datasets/iris",
    ):
        assert "REFUSED" in shell(containers, lease, script), script
    assert len([path for path, _ in server.asked if path == "/iris.bin"]) == 1
    second = started(installation, "bob", "iris")
    assert "iris.bin" in shell(containers, second, "ls /datasets/iris; ls /datasets")
    assert len([path for path, _ in server.asked if path == "/iris.bin"]) == 1
    stopped(installation, "ann")
    stopped(installation, "bob")


def test_shared_folders_are_seen_and_written_by_who_may(
    containers: Containers, installation: Installation, srv: Path
) -> None:
    ann, bob = started(installation, "ann"), started(installation, "bob")
    assert shell(containers, ann, "cat /data/course/notes.txt; ls /data").split() == [
        "notes",
        "course",
        "shared",
    ]
    assert "REFUSED" in shell(containers, ann, "echo x > /data/shared/by-ann")
    assert shell(containers, bob, "echo hello > /data/shared/by-bob && cat /data/shared/by-bob") == "hello\n"
    assert shell(containers, ann, "cat /data/shared/by-bob") == "hello\n"
    assert "REFUSED" in shell(containers, bob, "echo x > /data/course/notes.txt")
    assert (srv / "course/notes.txt").read_text() == "notes\n"
    _tricks(containers, ann, bob, srv)
    stopped(installation, "ann")
    stopped(installation, "bob")


def _tricks(containers: Containers, ann: str, bob: str, srv: Path) -> None:
    """Links in a shared folder: a soft one leads only where the reader could go anyway, a hard one across
    folders is refused, although both lie on one file system."""
    secret = srv / "staff/marks.txt"
    shell(
        containers,
        bob,
        f"ln -s {secret} /data/shared/soft; ln -s / /data/shared/root; ln -s ../staff /data/shared/up",
    )
    for link in ("soft", "up/marks.txt", f"root/{secret}"):
        assert "marks" not in shell(containers, ann, f"cat /data/shared/{link}").replace("marks.txt", "")
    for source in ("/data/course/notes.txt", "/etc/passwd", "/home/jovyan/.profile"):
        assert "REFUSED" in shell(containers, bob, f"touch ~/.profile; ln {source} /data/shared/hard"), source
    made = shell(containers, bob, "mknod /data/shared/null c 1 3")
    assert "REFUSED" in made
    made = shell(
        containers,
        bob,
        "cp /bin/sh /data/shared/sh && chmod u+s /data/shared/sh && /data/shared/sh -pc id -u",
    )
    assert "uid=0" not in made


def test_a_folder_that_was_replaced_by_a_link_is_not_mounted(
    containers: Containers, installation: Installation, srv: Path
) -> None:
    """Somebody with rights on the host moves it; what stands there now is the system's."""
    (srv / "course").rename(srv / "course.old")
    (srv / "course").symlink_to("/etc")
    try:
        options = {"environment": "minimal", "flavor": "cpu"}
        installation.hub("POST", "/users/ann/server", {"user_options": options})
        wait_until(
            lambda: any(
                lease["end_reason"] == "refused"
                for lease in installation.broker("leases?user=ann&limit=1").json()
            ),
            what="it is refused",
        )
        assert not containers.all()
    finally:
        (srv / "course").unlink()
        (srv / "course.old").rename(srv / "course")
