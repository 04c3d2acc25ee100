"""XFS and ZFS limits: real project ids on a real XFS, the commands as strict stand-ins."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from allotment_spawner.disk.base import ToolFailed
from allotment_spawner.disk.detect import quota_for
from allotment_spawner.disk.mounts import Mount, mount_of, parse_mounts
from allotment_spawner.disk.projects import ProjectIds, project_of
from allotment_spawner.disk.walk import open_folder
from allotment_spawner.disk.xfs import XfsQuota
from allotment_spawner.disk.zfs import ZfsQuota
from allotment_testing.loop_disk import loop_disk
from allotment_testing.quota_tools import XfsQuotaStandIn, ZfsStandIn

MIB = 2**20
ZFS = Mount((0, 50), "/tank/homes", "zfs", "tank/homes", frozenset({"rw", "xattr"}))


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with loop_disk(tmp_path_factory.mktemp("xfs"), "xfs", mib=320) as point:
        yield point


@pytest.fixture
def root(disk: Path, request: pytest.FixtureRequest) -> Path:
    made: Path = disk / str(request.node.name)
    made.mkdir()
    return made


def xfs(disk: Path, tmp_path: Path, tool: XfsQuotaStandIn) -> XfsQuota:
    mount = Mount((7, 0), str(disk), "xfs", "/dev/loop0", frozenset({"rw", "prjquota"}))
    return XfsQuota(mount=mount, ids=ProjectIds(tmp_path / "projects.json"), run=tool)


def limited(quota: XfsQuota | ZfsQuota, folder: Path, limit: int | None) -> bool:
    descriptor = open_folder(folder)
    try:
        return quota.limit(folder, descriptor, limit)
    finally:
        os.close(descriptor)


def used(quota: XfsQuota | ZfsQuota, folder: Path) -> tuple[int | None, int | None, int | None]:
    descriptor = open_folder(folder)
    try:
        return quota.usage(folder, descriptor)
    finally:
        os.close(descriptor)


def project(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return project_of(descriptor)
    finally:
        os.close(descriptor)


def test_what_is_written_later_is_counted_where_it_lies(root: Path, disk: Path, tmp_path: Path) -> None:
    tool = XfsQuotaStandIn(disk)
    quota = xfs(disk, tmp_path, tool)
    for name, size in (("ann", 3 * MIB), ("ben", MIB)):
        quota.make(root / name)
        assert limited(quota, root / name, 10 * MIB)
        (root / name / "deep" / "er").mkdir(parents=True)
        (root / name / "deep" / "er" / "file").write_bytes(b"x" * size)
    os.sync()
    first, second = used(quota, root / "ann"), used(quota, root / "ben")
    assert first[0] is not None
    assert second[0] is not None
    assert 3 * MIB <= first[0] < 4 * MIB
    assert MIB <= second[0] < 2 * MIB
    assert first[2] == second[2] == 10 * MIB
    assert project(root / "ann") != project(root / "ben")
    assert set(tool.limits.values()) == {10 * MIB}


LEAVE = """
import os, sys
from allotment_spawner.disk.projects import put_project
os.setgroups([]), os.setgid(100), os.setuid(1000)
put_project(int(sys.argv[1]), int(sys.argv[2]))
"""


def leave(folder: Path, number: int) -> None:
    """As the folder's owner, in its own process; the way to it is closed to that account."""
    descriptor = open_folder(folder)
    try:
        argv = [sys.executable, "-c", LEAVE, str(descriptor), str(number)]
        subprocess.run(argv, check=True, pass_fds=[descriptor])
    finally:
        os.close(descriptor)


def test_who_owns_a_file_can_leave_the_project_so_nothing_is_left_to_the_quota_alone(
    root: Path, disk: Path, tmp_path: Path
) -> None:
    """The kernel lets an account without any rights do it: out of the limit, or into a neighbour's."""
    quota = xfs(disk, tmp_path, XfsQuotaStandIn(disk))
    for name in ("ann", "ben"):
        quota.make(root / name)
        os.chown(root / name, 1000, 100)
        assert limited(quota, root / name, 10 * MIB)
    numbers = [project(root / name) for name in ("ann", "ben")]
    assert abs(numbers[0] - numbers[1]) > 1000, "whose number is guessed can be harmed"
    for number in (0, numbers[1]):
        leave(root / "ann", number)
        assert project(root / "ann") == number
        assert used(quota, root / "ann") == (None, None, None), "not the neighbour's"
    assert quota.watch
    assert "measured, too" in (quota.note or "")
    assert limited(quota, root / "ann", 10 * MIB)
    assert project(root / "ann") == numbers[0], "the next start brings it back"


def test_a_home_that_was_there_before_is_counted_whole_and_no_link_followed(
    root: Path, disk: Path, tmp_path: Path
) -> None:
    home, outside = root / "old", root / "outside"
    (home / "a" / "b").mkdir(parents=True)
    outside.mkdir()
    (outside / "file").write_bytes(b"y" * MIB)
    (home / "a" / "b" / "file").write_bytes(b"x" * MIB)
    (home / "link").symlink_to(outside)
    (home / "link-to-file").symlink_to(outside / "file")
    os.mkfifo(home / "pipe")
    quota = xfs(disk, tmp_path, XfsQuotaStandIn(disk))
    assert limited(quota, home, 10 * MIB)
    assert project(home) == project(home / "a" / "b" / "file") != 0
    assert project(outside) == project(outside / "file") == 0


def test_limits_are_lifted_and_numbers_never_used_again(root: Path, disk: Path, tmp_path: Path) -> None:
    tool = XfsQuotaStandIn(disk)
    quota = xfs(disk, tmp_path, tool)
    quota.make(root / "ann")
    assert limited(quota, root / "ann", 10 * MIB)
    first = project(root / "ann")
    assert not limited(quota, root / "ann", None)
    assert tool.limits[first] == 0
    assert used(quota, root / "ann")[2] is None
    assert quota.remove(root / "ann") is False
    (root / "ann").rmdir()
    quota.make(root / "ann")
    limited(quota, root / "ann", MIB)
    assert project(root / "ann") != first


def test_a_folder_without_a_limit_costs_no_number(root: Path, disk: Path, tmp_path: Path) -> None:
    tool = XfsQuotaStandIn(disk)
    quota = xfs(disk, tmp_path, tool)
    quota.make(root / "ann")
    assert not limited(quota, root / "ann", None)
    assert project(root / "ann") == 0
    assert used(quota, root / "ann") == (None, None, None)
    assert tool.limits == {}


def test_a_command_that_fails_is_said(root: Path, disk: Path, tmp_path: Path) -> None:
    tool = XfsQuotaStandIn(disk, broken=True)
    quota = xfs(disk, tmp_path, tool)
    quota.make(root / "ann")
    with pytest.raises(ToolFailed, match="Function not implemented"):
        limited(quota, root / "ann", MIB)


def test_this_disk_has_no_quota_and_doctor_can_say_how_to_change_that(disk: Path, tmp_path: Path) -> None:
    mount = mount_of(disk)
    assert mount is not None
    assert mount.kind == "xfs"
    found = quota_for(disk, ids=ProjectIds(tmp_path / "p"))
    assert found.name == "none"
    assert "prjquota" in (found.note or "")


def test_zfs_quotas(tmp_path: Path) -> None:
    tool = ZfsStandIn("tank/homes")
    quota = ZfsQuota(mount=ZFS, ids=ProjectIds(tmp_path / "projects.json"), run=tool)
    assert ZfsQuota.works_on(ZFS, tool) is None
    for name in ("ann", "old"):
        quota.make(tmp_path / name)
    (tmp_path / "old" / "file").write_text("x")
    assert limited(quota, tmp_path / "ann", 5 * MIB)
    assert limited(quota, tmp_path / "old", 5 * MIB)
    assert tool.recursive == [False, True], "what lies there already is put into the project, too"
    assert sorted(tool.folders.values()) == [tmp_path / "ann", tmp_path / "old"]
    assert used(quota, tmp_path / "ann") == (MIB, 7, 5 * MIB)
    assert quota.remove(tmp_path / "ann") is False
    assert sorted(tool.quotas.values()) == [0, 5 * MIB]
    assert used(quota, tmp_path / "ann") == (None, None, None)


@pytest.mark.parametrize(
    ("feature", "remedy"), [("disabled", "zpool upgrade tank"), ("-", "no project quotas")]
)
def test_zfs_pools_without_them(feature: str, remedy: str) -> None:
    assert remedy in (ZfsQuota.works_on(ZFS, ZfsStandIn("tank/homes", feature=feature)) or "")


def test_mounts_with_blanks_and_on_top_of_each_other(tmp_path: Path) -> None:
    text = (
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "30 22 0:40 / /srv/my\\040homes rw shared:2 - zfs tank/homes rw,xattr\n"
        "31 22 8:2 / /data rw - ext4 /dev/sdb1 rw\n"
        "32 31 8:3 / /data rw - xfs /dev/sdc1 rw,prjquota\n"
        "nonsense\n"
    )
    mounts = parse_mounts(text)
    assert len(mounts) == 4
    home = mount_of(Path("/srv/my homes/ann"), mounts)
    assert home is not None
    assert (home.kind, home.source, home.point) == ("zfs", "tank/homes", "/srv/my homes")
    data = mount_of(Path("/data/x"), mounts)
    assert data is not None
    assert data.kind == "xfs"
    assert XfsQuota.works_on(data) is None
    other = mount_of(Path("/database"), mounts)
    assert other is not None
    assert other.point == "/"
