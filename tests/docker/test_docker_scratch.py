"""Scratch of real sessions: one folder each, limited by a real file system, wiped at the end; the floor."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from allotment_spawner.engines.docker_scratch import DockerEmptier
from allotment_spawner.launch.container import Owner
from allotment_testing.docker_daemon import DockerDaemon
from allotment_testing.installation import Installation, wait_until
from allotment_testing.loop_disk import fill, loop_disk, simple_quotas
from allotment_testing.recovery_checks import Session
from allotment_testing.workloads import Containers, prepared_installation

SITE = """
scratch: {{path: {disk}, size_gib: 0.015625}}
disk: {{floor_gib: 0.1}}
"""


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A btrfs of its own, since a quota needs a file system that has them."""
    with loop_disk(tmp_path_factory.mktemp("scratch"), "btrfs", mib=600) as point:
        simple_quotas(point)
        yield point


@pytest.fixture(scope="module")
def installation(disk: Path, daemon: DockerDaemon) -> Iterator[Installation]:
    made = prepared_installation(daemon)
    with made.paths.site.open("a") as site:
        site.write(SITE.format(disk=disk))
    try:
        made.up()
        yield made
    finally:
        made.close()


def folders(disk: Path) -> list[str]:
    [root] = disk.glob("allotment-*")
    return sorted(path.name for path in root.iterdir() if not path.name.startswith("."))


def shell(containers: Containers, lease: str, script: str) -> str:
    return containers.inside(lease, "sh", "-c", script).strip()


def test_a_session_has_its_own_and_it_is_wiped(
    installation: Installation, containers: Containers, disk: Path, tmp_path: Path
) -> None:
    (tmp_path / "precious").write_text("kept")
    ann = Session(installation=installation, workloads=containers)
    ben = Session(installation=installation, server="second", workloads=containers)
    first, second = ann.start("cpu")["id"], ben.start("cpu")["id"]
    assert folders(disk) == sorted([first, second])
    assert shell(containers, first, "echo mine > /tmp/file; cat /scratch/file; echo $ALLOTMENT_SCRATCH") == (
        "mine\n/scratch"
    )
    assert shell(containers, second, "ls -A /scratch; stat -c %u:%g:%a /scratch") == "1000:100:700"
    hostile = f"ln -s {tmp_path} /scratch/link; mkdir -p /scratch/a/b; chmod 000 /scratch/a; mkfifo /tmp/pipe"
    shell(containers, first, hostile)
    ann.stop()
    wait_until(lambda: folders(disk) == [second], what="the folder is gone")
    [root] = disk.glob("allotment-*")
    wait_until(lambda: not list((root / ".trash").iterdir()), what="its content is wiped")
    assert (tmp_path / "precious").read_text() == "kept"
    ben.stop()


def test_more_than_the_limit_is_refused_and_operators_see_why(
    installation: Installation, containers: Containers, disk: Path
) -> None:
    session = Session(installation=installation, workloads=containers)
    lease = session.start("cpu")["id"]
    script = (
        "dd if=/dev/urandom of=/scratch/big bs=1M count=40 2>&1; rm -f /scratch/big; echo ok > /tmp/after"
    )
    assert "Disk quota exceeded" in shell(containers, lease, script)
    view = installation.broker("disk").json()
    assert (view["ok"], view["quota"], view["quota_note"]) == (True, "btrfs", None)
    [place] = [one for one in view["places"] if one["name"] == "scratch"]
    assert place["path"].startswith(str(disk))
    assert {"data", "engine"} <= {one["name"] for one in view["places"]}
    session.stop()


def test_a_full_disk_starts_nothing_new_and_ends_what_runs(
    installation: Installation, containers: Containers, disk: Path
) -> None:
    running = Session(installation=installation, workloads=containers)
    lease = running.start("cpu")["id"]
    fill(disk, leave_bytes=60 * 2**20)
    late = Session(installation=installation, server="late", workloads=containers)
    late.ask("cpu")
    wait_until(lambda: late.newest() is not None, what="the refusal can be read")
    told = installation.broker("leases?server=late").json()[0]
    assert told["end_reason"] == "refused"
    why = installation.broker(f"leases/{told['id']}/explain").json()
    assert "nothing new is started" in str(why), why
    assert shell(containers, lease, "echo still > /tmp/alive; cat /tmp/alive") == "still"
    running.stop()
    (disk / "filler").unlink()
    subprocess.run(["sync", "-f", str(disk)], check=True)
    wait_until(lambda: installation.broker("disk").json()["ok"], what="there is room again")
    again = Session(installation=installation, server="late", workloads=containers)
    again.start("cpu")
    again.stop()


def test_an_agent_that_is_not_root_has_a_helper(daemon: DockerDaemon, tmp_path: Path) -> None:
    """What the session's user made nobody else but root may remove."""
    folder = tmp_path / "0123456789abcdef"
    folder.mkdir()
    folder.chmod(0o1777)
    kept = tmp_path / "kept"
    kept.write_text("kept")
    for path in (folder / "closed", folder / "closed" / "deep"):
        path.mkdir()
        os.chown(path, 1000, 100)
    (folder / "closed" / "deep" / "file").write_text("x")
    (folder / "link").symlink_to(kept)
    os.chown(folder / "link", 1000, 100, follow_symlinks=False)
    (folder / "closed" / "deep").chmod(0)
    (folder / "closed").chmod(0)
    emptier = DockerEmptier(installation="0123abcd", base_url=daemon.base_url)
    asyncio.run(emptier.empty(str(folder), folder.name, Owner()))
    assert kept.read_text() == "kept"
    assert not (folder / "closed").exists()
