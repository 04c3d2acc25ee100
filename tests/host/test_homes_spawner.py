"""Whose files a home holds, the folder it is, and its owner's lines inside the container."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from allotment_spawner.core.errors import HomeUnavailable
from allotment_spawner.daemon_threads import DaemonThreads
from allotment_spawner.engines.home_folders import ensure_home_folder
from allotment_spawner.engines.owners import OwnerRule, SystemAccounts
from allotment_spawner.launch.account import AccountFiles, with_account
from allotment_spawner.launch.container import Owner
from allotment_spawner.spawners.homes import Homes
from allotment_testing.other_account import readable_by_all

IMAGE = AccountFiles(
    passwd="root:x:0:0:root:/root:/bin/bash\nbackup:x:34:34::/:/bin/sh\n", group="root:x:0:\nusers:x:100:\n"
)


def entry(name: str, uid: int, gid: int) -> pwd.struct_passwd:
    return pwd.struct_passwd((name, "x", uid, gid, "", f"/home/{name}", "/bin/sh"))


def nss(uid: int = 2001, gid: int = 2001, groups: tuple[int, ...] = ()) -> OwnerRule:
    def by_name(name: str) -> pwd.struct_passwd:
        if name == "nobody-knows":
            raise KeyError(name)
        return entry(name, uid, gid)

    accounts = SystemAccounts(
        by_name=by_name, groups_of=lambda _name, _gid: groups, group_name=lambda gid: f"team{gid}"
    )
    return OwnerRule(kind="nss", source=accounts)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as made:
        yield made


def test_everybody_is_the_same_account_by_default() -> None:
    assert OwnerRule().account_of("ann").owner == Owner(uid=1000, gid=100)


def test_the_name_service_says_who_and_in_which_groups() -> None:
    account = nss(2001, 2001, groups=(2001, 0, 6, 998, 5000, 65534, 4000)).account_of("ann")
    assert account.owner == Owner(uid=2001, gid=2001, groups=(4000, 5000))
    assert account.group_names == {2001: "team2001", 4000: "team4000", 5000: "team5000"}
    assert account.name == "ann"


@pytest.mark.parametrize(("uid", "gid"), [(0, 0), (33, 33), (999, 100), (65534, 65534), (2001, 0)])
def test_the_systems_own_accounts_run_no_session(uid: int, gid: int) -> None:
    with pytest.raises(HomeUnavailable, match="account of the system itself"):
        nss(uid, gid).account_of("ann")


@pytest.mark.parametrize("name", ["nobody-knows", "a\0b"])
def test_an_unknown_person_is_told_so(name: str) -> None:
    rule = nss() if name == "nobody-knows" else OwnerRule(kind="nss")
    with pytest.raises(HomeUnavailable, match="knows no account"):
        rule.account_of(name)


def test_this_systems_root_is_refused_by_its_own_name_service() -> None:
    with pytest.raises(HomeUnavailable, match="account of the system itself"):
        OwnerRule(kind="nss").account_of("root")


def test_lines_are_added_once_and_never_changed() -> None:
    owner = Owner(uid=2001, gid=2001, groups=(4000, 100))
    made = with_account(IMAGE, owner=owner, name="ann", group_names={2001: "ann", 4000: "domain users"})
    assert made.passwd == IMAGE.passwd + "ann:x:2001:2001::/home/jovyan:/bin/bash\n"
    assert made.group == IMAGE.group + "ann:x:2001:\ng4000:x:4000:\n"
    assert with_account(made, owner=owner, name="ann", group_names={}) == made


def test_a_name_of_the_image_is_not_taken_over() -> None:
    made = with_account(IMAGE, owner=Owner(2001, 2002), name="backup", group_names={2002: "root"})
    assert "u2001:x:2001:2002:" in made.passwd
    assert made.group.endswith("g2002:x:2002:\n")


def test_a_folder_is_made_closed_and_given_away(tmp_path: Path) -> None:
    home = tmp_path / "homes" / "ann"
    assert ensure_home_folder(home, Owner(2001, 2002))
    seen = home.stat()
    assert (seen.st_uid, seen.st_gid, seen.st_mode & 0o7777) == (2001, 2002, 0o700)
    assert not ensure_home_folder(home, Owner(2001, 2002))


def test_what_lies_in_a_home_is_never_touched(tmp_path: Path) -> None:
    """No chown storm: a file of another owner deep inside stays, however often the home is prepared."""
    home = tmp_path / "ann"
    ensure_home_folder(home, Owner(2001, 2001))
    (home / "deep").mkdir()
    (home / "deep" / "file").write_text("x")
    os.chown(home / "deep" / "file", 3003, 3003)
    ensure_home_folder(home, Owner(2001, 2001))
    assert (home / "deep" / "file").stat().st_uid == 3003


def test_a_kill_between_making_and_giving_away_is_finished_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def dies(*_: object, **__: object) -> None:
        raise Killed

    home = tmp_path / "ann"
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(os, "chown", dies)
        ensure_home_folder(home, Owner(2001, 2001))
    assert home.stat().st_uid == os.geteuid()
    ensure_home_folder(home, Owner(2001, 2001))
    assert (home.stat().st_uid, home.stat().st_mode & 0o7777) == (2001, 0o700)


def root_squash(*_: object, **__: object) -> None:
    raise PermissionError(1, "Operation not permitted")


def test_where_root_has_no_rights_it_is_said_who_must_make_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "chown", root_squash)
    with pytest.raises(HomeUnavailable) as refused:
        ensure_home_folder(tmp_path / "ann", Owner(2001, 2001))
    assert "install -d -m 0700 -o 2001 -g 2001" in refused.value.next_step
    assert not (tmp_path / "ann").exists()


RIGHTS = {
    "root without chown, as on a file server that squashes it": [
        "--bounding-set=-chown",
        "--inh-caps=-chown",
    ],
    "an ordinary account": ["--reuid=12345", "--regid=12345", "--clear-groups"],
}


@pytest.mark.parametrize("options", RIGHTS.values(), ids=RIGHTS)
def test_a_process_without_the_right_says_so_and_leaves_nothing(options: list[str]) -> None:
    """The kernel itself refuses; in a folder that the other account could look at."""
    code = (
        "import sys; from pathlib import Path\n"
        "from allotment_spawner.core.errors import HomeUnavailable\n"
        "from allotment_spawner.engines.home_folders import ensure_home_folder\n"
        "from allotment_spawner.launch.container import Owner\n"
        "try: ensure_home_folder(Path(sys.argv[1]), Owner(2001, 2001))\n"
        "except HomeUnavailable as refusal: print(refusal.sentence)\n"
    )
    with tempfile.TemporaryDirectory(prefix="homes-") as base:
        Path(base).chmod(0o755)
        argv = ["setpriv", *options, sys.executable, "-c", code, f"{base}/ann"]
        with tempfile.TemporaryDirectory(prefix="mounts-") as stash:
            done = subprocess.run(
                [*readable_by_all(Path(stash)), *argv], check=False, capture_output=True, text=True
            )
        assert "You have no home yet" in done.stdout, done.stderr
        assert list(Path(base).iterdir()) == []


def test_a_home_that_the_session_could_not_write_in_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "ann"
    home.mkdir(mode=0o755)
    with pytest.raises(HomeUnavailable, match="belongs to uid 0") as refused:
        ensure_home_folder(home, Owner(2001, 2001))
    assert refused.value.next_step.endswith(f"chown 2001:2001 {home}")
    os.chown(home, 0, 4000)
    home.chmod(0o770)
    assert not ensure_home_folder(home, Owner(2001, 2001, groups=(4000,)))


@pytest.mark.parametrize("kind", ["file", "dangling", "below a file"])
def test_what_is_no_folder_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "ann"
    if kind == "file":
        path.write_text("")
    elif kind == "dangling":
        path.symlink_to(tmp_path / "nowhere")
    else:
        (tmp_path / "base").write_text("")
        path = tmp_path / "base" / "ann"
    with pytest.raises(HomeUnavailable):
        ensure_home_folder(path, Owner(2001, 2001))


def test_two_starts_at_once_make_one_home(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    gate = threading.Barrier(2)

    def make() -> bool:
        gate.wait(timeout=10)
        return ensure_home_folder(tmp_path / "ann", Owner(2001, 2001))

    made = [each.result(10) for each in [pool.submit(make), pool.submit(make)]]
    assert made.count(True) == 1
    assert (tmp_path / "ann").stat().st_uid == 2001


async def test_a_file_server_that_hangs_delays_its_own_starts_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    hangs: Callable[..., object] = lambda *_: release.wait(10)  # noqa: E731 - stands for a hung stat()
    monkeypatch.setattr("allotment_spawner.spawners.homes.ensure_home_folder", hangs)
    homes = Homes(
        template=f"{tmp_path}/{{username}}",
        rule=OwnerRule(),
        threads=DaemonThreads(2, name="homes"),
        limit_s=0.1,
    )
    with pytest.raises(HomeUnavailable, match="does not answer within"):
        await homes.of("ann", "feedbeef")
    release.set()


def test_a_process_ends_though_a_call_never_returns() -> None:
    """With a pool of concurrent.futures it would wait for the hung call for ever."""
    code = (
        "import asyncio, threading\n"
        "from allotment_spawner.daemon_threads import DaemonThreads\n"
        "async def main():\n"
        "    threads = DaemonThreads(1, name='x')\n"
        "    for _ in range(2):\n"
        "        try: await asyncio.wait_for(threads.run(threading.Event().wait), 0.1)\n"
        "        except TimeoutError: print(threading.active_count(), flush=True)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["2", "2"]


async def test_people_with_numbers_of_their_own_share_by_group() -> None:
    homes = Homes(template="volume", rule=nss(), threads=DaemonThreads(2, name="homes"), limit_s=10)
    assert (await homes.of("ann", "feedbeef")).env == {"ALLOTMENT_UMASK": "0002"}
    same = Homes(template="volume", rule=OwnerRule(), threads=DaemonThreads(2, name="homes"), limit_s=10)
    assert (await same.of("ann", "feedbeef")).env == {}


async def test_a_home_of_an_odd_name_stays_below_its_template(tmp_path: Path) -> None:
    me = Owner(os.getuid(), os.getgid())
    homes = Homes(
        template=f"{tmp_path}/{{username}}",
        rule=OwnerRule(fixed=me),
        threads=DaemonThreads(2, name="homes"),
        limit_s=10,
    )
    names = ["a.b@c", "a.b.c", "ä", "../../etc", "A", "a", "x" * 60, "{username}", ".", "-", "a/b", "a_2fb"]
    found = [Path((await homes.of(name, "feedbeef")).mount.source) for name in names]
    assert len(set(found)) == len(names)
    assert {path.parent for path in found} == {tmp_path}
    assert sorted(tmp_path.iterdir()) == sorted(found)
