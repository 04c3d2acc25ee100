"""Folders below a root: made once, given away, refused names and roots, removed, wiped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from allotment_spawner.core.errors import AgentUnavailable, BadOptions
from allotment_spawner.disk.keeper import FolderKeeper
from allotment_spawner.disk.roots import Root, check_name, split_template
from allotment_spawner.disk.space import space_of

GIB = 2**30


class Killed(Exception):
    """Stands for kill -9 at a step."""


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "scratch"


def keeper(scratch: Path, step: str = "") -> FolderKeeper:
    def on_step(now: str) -> None:
        if now == step:
            raise Killed

    state = scratch.parent / "state"
    state.mkdir(exist_ok=True)
    roots = {"scratch": scratch, "homes": scratch.parent / "homes"}
    return FolderKeeper(roots=roots, state_dir=state, on_step=on_step)  # type: ignore[arg-type]


def owner() -> tuple[int, int]:
    """Whom folders are given to: an ordinary account where we are root, else ourselves."""
    return (1234, 2345) if os.geteuid() == 0 else (os.geteuid(), os.getegid())


def make(with_keeper: FolderKeeper, name: str = "abc", **more: object) -> None:
    uid, gid = owner()
    arguments: dict[str, object] = {"uid": uid, "gid": gid, "mode": 0o700, "limit_bytes": GIB}
    with_keeper.make("scratch", name, **(arguments | more))  # type: ignore[arg-type]


def test_a_folder_is_made_once_and_belongs_to_its_owner(scratch: Path) -> None:
    uid, gid = owner()
    first = keeper(scratch).make("scratch", "abc", uid=uid, gid=gid, mode=0o700, limit_bytes=GIB)
    (scratch / "abc" / "file").write_text("kept")
    again = keeper(scratch).make("scratch", "abc", uid=uid, gid=gid, mode=0o700, limit_bytes=GIB)
    assert (first.created, again.created) == (True, False)
    assert first.path == str(scratch / "abc")
    found = (scratch / "abc").stat()
    assert (found.st_uid, found.st_gid) == (uid, gid)
    assert (scratch / "abc" / "file").read_text() == "kept"
    assert scratch.stat().st_mode & 0o777 == 0o700
    assert keeper(scratch).names("scratch") == ["abc"]


@pytest.mark.parametrize("step", ["folder.made", "folder.owned", "folder.limited"])
def test_a_folder_that_a_crash_left_half_made_is_finished(scratch: Path, step: str) -> None:
    with pytest.raises(Killed):
        make(keeper(scratch, step))
    make(keeper(scratch))
    assert (scratch / "abc").stat().st_uid == owner()[0]


def test_an_empty_folder_that_an_operator_made_is_not_given_away(scratch: Path) -> None:
    """A home's own disk is mounted there; while it is not, the place itself must not become the home."""
    make(keeper(scratch), "other")
    (scratch / "abc").mkdir()
    (scratch / "abc").chmod(0o755)
    make(keeper(scratch))
    found = (scratch / "abc").stat()
    assert (found.st_uid, found.st_mode & 0o7777) == (os.geteuid(), 0o755)


@pytest.mark.parametrize("step", ["folder.unlimited", "folder.trashed"])
def test_a_removal_that_a_crash_cut_short_is_finished(scratch: Path, step: str) -> None:
    make(keeper(scratch))
    (scratch / "abc" / "file").write_text("x")
    with pytest.raises(Killed):
        keeper(scratch, step).remove("scratch", "abc")
    keeper(scratch).remove("scratch", "abc")
    assert keeper(scratch).sweep() == 0
    assert keeper(scratch).names("scratch") == []
    assert list((scratch / ".trash").iterdir()) == []


def test_what_is_gone_is_gone(scratch: Path) -> None:
    keeper(scratch).remove("scratch", "never-was")
    assert keeper(scratch).usage("scratch", "never-was") is None


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../out", "a/../b", ".trash", "a//b", "/a", "a\n", "a\x00b", "x" * 300, "a/b/c/d/e"],
)
def test_names_that_lead_elsewhere_are_refused(scratch: Path, name: str) -> None:
    with pytest.raises(BadOptions):
        make(keeper(scratch), name)
    with pytest.raises(BadOptions):
        keeper(scratch).remove("scratch", name)


def test_a_root_that_others_may_write_in_is_refused(scratch: Path) -> None:
    scratch.mkdir()
    scratch.chmod(0o777)
    with pytest.raises(AgentUnavailable, match="writable by nobody else"):
        make(keeper(scratch))
    assert not (scratch / "abc").exists()


def test_a_folder_that_holds_other_files_is_never_wiped(scratch: Path) -> None:
    scratch.mkdir(mode=0o700)
    (scratch / "thesis").mkdir()
    with pytest.raises(AgentUnavailable, match="holds other files"):
        keeper(scratch).remove("scratch", "thesis")
    assert (scratch / "thesis").is_dir()


def test_a_link_in_place_of_the_root_is_refused(scratch: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir(mode=0o700)
    scratch.symlink_to(tmp_path / "other")
    with pytest.raises(AgentUnavailable):
        make(keeper(scratch))


def test_a_link_in_place_of_a_folder_is_not_followed(scratch: Path, tmp_path: Path) -> None:
    make(keeper(scratch), "first")
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("kept")
    before = victim.stat().st_uid
    (scratch / "abc").symlink_to(victim)
    with pytest.raises(AgentUnavailable):
        make(keeper(scratch), "abc")
    keeper(scratch).remove("scratch", "abc")
    keeper(scratch).sweep()
    assert (victim / "file").read_text() == "kept"
    assert victim.stat().st_uid == before


def home(scratch: Path, name: str) -> str:
    """Made as root does it; any other account only makes the folder, since it could not give it away."""
    if os.geteuid() != 0:
        (scratch.parent / "homes" / name).mkdir(parents=True)
        return str(scratch.parent / "homes" / name)
    uid, gid = owner()
    made = keeper(scratch).make("homes", name, uid=uid, gid=gid, mode=0o700, limit_bytes=None)
    assert made.created
    assert Path(made.path).stat().st_uid == uid
    return made.path


def test_homes_are_made_but_never_removed(scratch: Path) -> None:
    assert Path(home(scratch, "a.b@c")).is_dir()
    with pytest.raises(BadOptions, match="not removed"):
        keeper(scratch).remove("homes", "a.b@c")
    usage = keeper(scratch).usage("homes", "a.b@c")
    assert usage is not None
    assert usage.used_bytes is None, "only a container as the person looks into a home"


def test_a_home_deeper_below_its_root(scratch: Path) -> None:
    assert home(scratch, "ann/work") == str(scratch.parent / "homes" / "ann" / "work")


NOT_ROOT = """
import os, pathlib, sys, tempfile
from allotment_spawner.core.errors import AgentUnavailable
from allotment_spawner.disk.keeper import FolderKeeper
top = pathlib.Path(tempfile.mkdtemp(dir="/tmp"))
try:
    if os.geteuid() == 0:
        os.chown(top, 4242, 4242)
        os.setgroups([]); os.setgid(4242); os.setuid(4242)
    keeper = FolderKeeper(roots={"scratch": top / "s", "homes": top / "h"}, state_dir=top)
    made = keeper.make("scratch", "abc", uid=1000, gid=100, mode=0o700, limit_bytes=5)
    print(oct((top / "s").stat().st_mode & 0o7777), oct((top / "s" / "abc").stat().st_mode & 0o7777))
    print(made.enforced, made.note)
    try:
        keeper.make("homes", "ann", uid=1000, gid=100, mode=0o700, limit_bytes=None)
    except AgentUnavailable as refusal:
        print(refusal.sentence)
    (top / "s" / "abc" / "closed").mkdir()
    (top / "s" / "abc" / "closed" / "file").touch()
    (top / "s" / "abc" / "closed").chmod(0)
    keeper.remove("scratch", "abc")
    print(keeper.sweep(), keeper.names("scratch"))
finally:
    import shutil
    shutil.rmtree(top)
"""


def test_an_agent_that_is_not_root_does_what_it_can_and_says_so() -> None:
    done = subprocess.run([sys.executable, "-c", NOT_ROOT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    modes, limit, homes, wiped = done.stdout.splitlines()
    assert modes == "0o700 0o1777", "open to the session's user, and the folder above to nobody else"
    assert limit.startswith("False Allotment's agent does not run as root")
    assert "cannot give homes" in homes
    assert wiped == "0 []"


def test_system_accounts_get_no_folder(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for uid, gid in ((0, 100), (999, 100), (1000, 0)):
        with pytest.raises(BadOptions):
            make(keeper(scratch), uid=uid, gid=gid)


def test_an_unknown_root_is_refused(tmp_path: Path) -> None:
    bare = FolderKeeper(roots={}, state_dir=tmp_path)
    with pytest.raises(BadOptions, match="without a folder"):
        bare.names("scratch")


def test_a_folder_without_quota_is_measured(scratch: Path) -> None:
    make(keeper(scratch))
    (scratch / "abc" / "file").write_bytes(b"x" * 100_000)
    usage = keeper(scratch).usage("scratch", "abc")
    assert usage is not None
    assert usage.watch
    assert not usage.enforced
    assert usage.files == 1
    assert usage.used_bytes is not None
    assert usage.used_bytes >= 100_000


@pytest.mark.parametrize(
    ("template", "filled", "root", "name"),
    [
        ("/srv/homes/{username}", "/srv/homes/ann", "/srv/homes", "ann"),
        ("/data/{username}/home", "/data/ann/home", "/data", "ann/home"),
        ("/nfs/u-{username}", "/nfs/u-ann", "/nfs", "u-ann"),
        ("/{username}", "/ann", "/", "ann"),
    ],
)
def test_a_template_is_split_into_root_and_name(template: str, filled: str, root: str, name: str) -> None:
    assert split_template(template, filled) == (Path(root), name)
    assert check_name(name)


def test_room_is_that_of_the_nearest_folder_that_exists(tmp_path: Path) -> None:
    here, below = space_of(tmp_path), space_of(tmp_path / "not" / "there")
    assert here is not None
    assert below is not None
    assert here.total_bytes == below.total_bytes
    assert 0 <= here.free_bytes <= here.total_bytes


def test_only_scratch_is_wiped(tmp_path: Path) -> None:
    assert Root("scratch", tmp_path).wipes
    assert not Root("homes", tmp_path).wipes
