"""Limits on a real btrfs: refused past them, lifted to delete, subvolumes inside, all gone at the end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from allotment_hub.host.purge import purge_folders
from allotment_hub.host.purge_scratch import purge_scratch
from allotment_hub.paths import Paths
from allotment_hub.site import ScratchSettings, Site
from allotment_spawner.disk.btrfs import BtrfsQuota
from allotment_spawner.disk.keeper import FolderKeeper
from allotment_spawner.disk.tools import run_tool
from allotment_testing.decided import runtime_of
from allotment_testing.loop_disk import loop_disk, simple_quotas

MIB = 2**20
LIMIT = 8 * MIB
PERSON = """
import errno, fcntl, os, struct, sys
work, folder = sys.argv[1:]
os.chdir(folder)  # as a mount in a container: what is above it does not matter
folder = "."
os.setgroups([]); os.setgid(100); os.setuid(1000)
if work == "subvolume":
    inside = os.open(folder, os.O_RDONLY)
    fcntl.ioctl(inside, 0x5000940E, bytearray(struct.pack("q4088s", 0, b"nested")))
    folder += "/nested"
written = 0
try:
    with open(folder + "/big", "wb", buffering=0) as stream:
        for _ in range(40):
            written += stream.write(os.urandom(1 << 20))
        os.fsync(stream.fileno())
except OSError as error:
    print(errno.errorcode[error.errno])
else:
    print("written")
"""


@pytest.fixture(scope="module", params=["qgroup", "squota"])
def disk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with loop_disk(tmp_path_factory.mktemp("btrfs"), "btrfs", mib=400) as point:
        if request.param == "squota":
            simple_quotas(point)
        else:
            run_tool(["btrfs", "quota", "enable", str(point)])
        assert BtrfsQuota.mode(point) == request.param
        yield point


@pytest.fixture
def keeper(disk: Path, tmp_path: Path) -> FolderKeeper:
    return FolderKeeper(roots={"scratch": disk / "scratch"}, state_dir=tmp_path)


def person(work: str, folder: Path) -> str:
    """What an ordinary account in the session gets to see."""
    done = subprocess.run(
        [sys.executable, "-c", PERSON, work, str(folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def groups(disk: Path) -> set[str]:
    said = run_tool(["btrfs", "qgroup", "show", "--raw", str(disk)])
    return {line.split()[0] for line in said.splitlines() if line[:1].isdigit()} - {"0/5"}


def test_a_session_is_refused_past_its_limit_and_its_neighbour_is_not(
    keeper: FolderKeeper, disk: Path
) -> None:
    one = keeper.make("scratch", "one", uid=1000, gid=100, mode=0o700, limit_bytes=LIMIT)
    two = keeper.make("scratch", "two", uid=1000, gid=100, mode=0o700, limit_bytes=100 * MIB)
    assert (one.enforced, one.quota, one.created) == (True, "btrfs", True)
    assert person("write", Path(one.path)) == "EDQUOT"
    assert person("write", Path(two.path)) == "written"
    os.sync()
    usage = keeper.usage("scratch", "one")
    assert usage is not None
    assert usage.enforced
    assert usage.limit_bytes == LIMIT
    assert usage.used_bytes is not None
    assert LIMIT // 2 < usage.used_bytes <= LIMIT
    for name in ("one", "two"):
        keeper.remove("scratch", name)
    assert keeper.names("scratch") == []


def test_subvolumes_that_a_session_makes_itself(keeper: FolderKeeper, disk: Path) -> None:
    """Simple quotas count them; under classic ones they are measured, and can be removed all the same."""
    made = keeper.make("scratch", "nest", uid=1000, gid=100, mode=0o700, limit_bytes=LIMIT)
    seen = person("subvolume", Path(made.path))
    if BtrfsQuota.mode(disk) == "squota":
        assert seen == "EDQUOT"
        assert made.note is None
    else:
        assert seen == "written"
        assert made.note is not None
        usage = keeper.usage("scratch", "nest")
        assert usage is not None
        assert usage.watch
        assert usage.used_bytes is not None
        assert usage.used_bytes > LIMIT, "measured, since the quota does not count it"
    keeper.remove("scratch", "nest")
    assert keeper.sweep() == 0
    assert keeper.names("scratch") == []


def test_a_full_folder_can_be_removed(keeper: FolderKeeper, disk: Path) -> None:
    """At its limit a subvolume refuses even to delete, so the limit goes first."""
    made = keeper.make("scratch", "full", uid=1000, gid=100, mode=0o700, limit_bytes=LIMIT)
    person("write", Path(made.path))
    keeper.remove("scratch", "full")
    assert keeper.sweep() == 0
    assert not Path(made.path).exists()
    ends = time.monotonic() + 60
    while [group for group in groups(disk) if group.startswith("1/")]:
        assert time.monotonic() < ends, "groups of folders that are gone stay"
        os.sync()
        keeper.sweep()


def test_the_limit_of_a_folder_can_be_changed_and_lifted(keeper: FolderKeeper, disk: Path) -> None:
    for limit in (LIMIT, 2 * LIMIT, None, LIMIT):
        again = keeper.make("scratch", "change", uid=1000, gid=100, mode=0o700, limit_bytes=limit)
        assert again.enforced is (limit is not None)
        usage = keeper.usage("scratch", "change")
        assert usage is not None
        assert usage.limit_bytes == limit
    keeper.remove("scratch", "change")


def test_an_ordinary_folder_that_was_there_before_is_left_as_it_is(keeper: FolderKeeper, disk: Path) -> None:
    keeper.make("scratch", "first", uid=1000, gid=100, mode=0o700, limit_bytes=None)
    (disk / "scratch" / "plain").mkdir()
    made = keeper.make("scratch", "plain", uid=1000, gid=100, mode=0o700, limit_bytes=LIMIT)
    assert (made.created, made.enforced) == (False, False)
    for name in ("first", "plain"):
        keeper.remove("scratch", name)
    assert keeper.sweep() == 0


def test_a_purge_removes_full_folders_too(disk: Path, tmp_path: Path) -> None:
    paths, site = Paths(tmp_path), Site(scratch=ScratchSettings(path=str(disk / "purge")))
    paths.agent_state.mkdir()
    runtime = runtime_of("0123abcd")
    root = paths.scratch(site.scratch.path, runtime.installation)
    keeper = FolderKeeper(roots={"scratch": root}, state_dir=paths.agent_state)
    made = keeper.make("scratch", "full", uid=1000, gid=100, mode=0o700, limit_bytes=LIMIT)
    person("subvolume", Path(made.path))
    person("write", Path(made.path))
    purge_scratch(site, runtime, paths)
    assert keeper.names("scratch") == []
    purge_folders(site, runtime, paths)
    assert not root.exists()
