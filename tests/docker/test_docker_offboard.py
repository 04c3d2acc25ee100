"""A person leaves, on a real engine: what is kept, what is defused, what a kill at any step leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from allotment_hub.host.errors import HostError
from allotment_spawner.core.errors import EngineUnavailable
from allotment_spawner.engines.helpers import remove_helpers
from allotment_spawner.launch.container import Owner
from allotment_spawner.launch.helper import HELPER_HOME, helper_container, helper_name, home_at
from allotment_testing.crashes import Crash, CrashPoint
from allotment_testing.docker_daemon import DockerDaemon
from allotment_testing.docker_images import image_tag
from allotment_testing.homes_box import INSTALLATION, HomesBox

FULL = os.environ.get("ALLOTMENT_KILL_MATRIX") == "full"
STEPS = range(13) if FULL else (3, 6, 8)
"""The last one lies behind the end: that run is not killed."""
FILL = r"""
mkdir -p data/deep closed && echo precious > data/deep/file && ln data/deep/file data/again
echo secret > closed/file && chmod 000 closed data/deep/file
ln -s deep/file data/inside && ln -s ../../../etc data/out && ln -s data/out chain
ln -s "$HOME/.bashrc" results && ln -s "$HOME/data/deep/file" absolute
mkfifo pipe && truncate -s 5G sparse && cp /bin/true suid && chmod 4755 suid
echo odd > "$(printf 'odd\nname\377')" && ln -s / -- "-rf"
"""


@pytest.fixture(scope="module")
def image(engine: Any) -> str:
    return str(engine.inspect_image(image_tag("minimal"))["Id"])


@pytest.fixture
def box(engine: Any, daemon: DockerDaemon, image: str, tmp_path: Path) -> HomesBox:
    return HomesBox(client=engine, base_url=daemon.base_url, image=image, folder=tmp_path)


def archives(box: HomesBox) -> list[Path]:
    folder = box.folder / "archive"
    return sorted(folder.iterdir()) if folder.exists() else []


def test_packed_and_handed_over_without_what_could_hurt(box: HomesBox) -> None:
    box.accounts.names |= {"a.b", "ben"}
    box.run("a.b", FILL)
    box.run("ben", "echo mine > .bashrc && echo mine > notes")
    leaving = box.leaving("a.b", archive=True, to="ben")
    said: list[str] = []
    offboarding = box.offboarding("a.b", say=said.append)
    offboarding.check(leaving)
    offboarding.run(leaving)
    folder = f"from-a.b-{leaving.stamp}"
    [archive] = archives(box)
    assert archive.stat().st_mode & 0o777 == 0o600
    with tarfile.open(archive) as tar:
        names = tar.getnames()
    assert {"./data/deep/file", "./closed/file", "./pipe", "./sparse"} <= set(names)
    # what led out of the folder would lead into ben's own files now
    listed = box.run("ben", f"cd {folder} && find . -type l -printf '%p %l\n'").splitlines()
    assert listed == ["./data/inside deep/file"]
    left_out = box.run("ben", f"cat {folder}/LINKS-LEFT-OUT.txt")
    assert all(name in left_out for name in ("data/out", "chain", "results", "absolute", "-rf"))
    assert box.run("ben", f"cat {folder}/data/deep/file {folder}/closed/file") == "precious\nsecret\n"
    assert box.run("ben", f"find {folder} -perm /7000 -o -type p") == ""
    assert box.run("ben", f"du -s -B1M {folder} | cut -f1; cat .bashrc notes").split() == [
        "1",
        "mine",
        "mine",
    ]
    assert box.exists("a.b") is False
    assert (box.accounts.ended, box.settled) == (["a.b"], {"a.b": "archived"})
    assert box.journal("a.b").load() is None
    assert any("ben finds the files" in line for line in said)


@pytest.mark.parametrize("step", STEPS)
def test_killed_anywhere_it_is_finished_by_the_next_run(box: HomesBox, step: int) -> None:
    user, to = f"leaver{step}", f"heir{step}"
    box.accounts.names |= {user, to}
    box.run(user, "echo precious > file")
    box.run(to, "true")
    leaving = box.leaving(user, archive=True, to=to)
    crash = CrashPoint()
    crash.arm(step)
    try:
        box.offboarding(user, on_step=crash).run(leaving)
    except Crash:
        found = box.journal(user).load()
        assert found is not None
        box.offboarding(user).run(found)
    assert box.run(to, f"cat from-{user}-*/file; ls -A | grep -c from-").split() == ["precious", "1"]
    assert [one.name for one in archives(box)] == [f"{user}-{leaving.stamp}.tar.gz"]
    assert box.exists(user) is False
    assert box.accounts.ended == [user]
    assert (box.helpers_left(), box.journal(user).load()) == ([], None)


def test_a_kill_in_the_middle_of_reading_leaves_nothing_that_stays(
    box: HomesBox, daemon: DockerDaemon, image: str
) -> None:
    """A real kill -9: the helper is left running and the file half-written; the next run ends both."""
    box.accounts.names |= {"kim"}
    box.run("kim", "head -c 20000000 /dev/urandom > noise")
    driver = Path(__file__).parents[1] / "support" / "allotment_testing" / "offboard_killed.py"
    argv = [sys.executable, str(driver), daemon.base_url, image, str(box.folder), "kim"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert [one.suffix for one in archives(box)] == [".part"]
    found = box.journal("kim").load()
    assert found is not None
    assert box.exists("kim") is True
    box.accounts.names -= {"kim"}  # the account ended there
    box.offboarding("kim").run(found)
    assert [one.suffix for one in archives(box)] == [".gz"]
    assert (box.helpers_left(), box.exists("kim")) == ([], False)


def test_without_an_option_the_home_stays(box: HomesBox) -> None:
    box.accounts.names |= {"lea"}
    box.run("lea", "echo here > file")
    box.offboarding("lea").run(box.leaving("lea"))
    assert box.run("lea", "cat file") == "here\n"
    assert (box.accounts.ended, box.settled) == (["lea"], {})


def test_a_session_that_still_runs_keeps_all_as_it_is(box: HomesBox) -> None:
    box.accounts.names |= {"max"}
    box.run("max", "echo here > file")
    clock = iter(range(0, 10_000, 50))
    offboarding = box.offboarding(
        "max", sessions_of=lambda _: 1, monotonic=lambda: next(clock), pause=lambda _: None
    )
    with pytest.raises(HostError, match="1 of max's sessions still run"):
        offboarding.run(box.leaving("max", erase=True))
    assert box.run("max", "cat file") == "here\n"
    assert box.journal("max").load() is not None


def test_a_home_that_a_container_uses_is_not_erased(box: HomesBox, engine: Any, image: str) -> None:
    box.run("nia", "echo here > file")
    volume = box.homes.mount_of("nia").source
    host = engine.create_host_config(network_mode="none", binds=[f"{volume}:/home/jovyan"])
    held = engine.create_container(image, ["sleep", "60"], entrypoint=[], host_config=host)
    try:
        with pytest.raises(EngineUnavailable, match="in use"):
            box.offboarding("nia").run(box.leaving("nia", erase=True))
    finally:
        engine.remove_container(held["Id"], force=True)
    found = box.journal("nia").load()
    assert found is not None
    box.offboarding("nia").run(found)
    assert box.exists("nia") is False


def test_an_heir_without_a_home_is_told_before_anything_is_done(box: HomesBox) -> None:
    with pytest.raises(HostError, match="has no home yet"):
        box.offboarding("ola").check(box.leaving("ola", to="nobody"))


def test_a_full_home_of_the_heir_keeps_archive_and_home(box: HomesBox, tmp_path: Path) -> None:
    """The heir's home is a folder that takes nothing: the archive is there for the next try."""
    folders = HomesBox(
        client=box._client,
        base_url=box.helpers._base_url,
        image=box._image,
        folder=tmp_path / "state",
        template=f"{tmp_path}/homes/{{username}}",
    )
    for name, mode in (("pia", 0o700), ("quin", 0o500)):
        home = tmp_path / "homes" / name
        home.mkdir(parents=True)
        os.chown(home, 1000, 100)
        home.chmod(mode)
    folders.run("pia", "mkdir -p a/b && echo precious > a/b/file && chmod 000 a")
    folders.accounts.names |= {"pia", "quin"}
    with pytest.raises(HostError, match="could not be put into the home of quin"):
        folders.offboarding("pia").run(folders.leaving("pia", to="quin"))
    assert (tmp_path / "homes" / "pia").exists()
    (tmp_path / "homes" / "quin").chmod(0o700)
    found = folders.journal("pia").load()
    assert found is not None
    folders.offboarding("pia").run(found)
    assert folders.run("quin", "cat from-pia-*/a/b/file") == "precious\n"
    assert not (tmp_path / "homes" / "pia").exists()
    assert archives(folders) == []


def test_files_of_others_in_a_home_are_neither_lost_nor_removed(box: HomesBox) -> None:
    """A helper has no more rights than its owner; what it cannot read is said, and nothing is erased."""
    box.run("rob", "mkdir mine")
    box.run("rob", "mkdir theirs && echo x > theirs/file && chmod -R 700 theirs", owner=Owner(0, 0))
    with pytest.raises(HostError, match="could not be read whole"):
        box.offboarding("rob").run(box.leaving("rob", archive=True))
    assert box.exists("rob") is True
    assert archives(box) == []


def test_what_a_killed_helper_left_is_taken_away(box: HomesBox, engine: Any, image: str) -> None:
    name = helper_name(INSTALLATION, "pack", "sam")
    create, host = helper_container(
        installation=INSTALLATION,
        name=name,
        image=image,
        argv=["sleep", "60"],
        owner=Owner(),
        mounts=[home_at(box.homes.mount_of("sam"))],
    )
    engine.create_container(**create, host_config=engine.create_host_config(**host))
    engine.start(name)
    inside = engine.inspect_container(name)
    assert inside["HostConfig"]["ReadonlyRootfs"]
    assert inside["HostConfig"]["CapDrop"] == ["ALL"]
    assert inside["HostConfig"]["NetworkMode"] == "none"
    assert [(one["Destination"], one["RW"]) for one in inside["Mounts"]] == [(HELPER_HOME, False)]
    remove_helpers(engine, "0badcafe")
    assert box.helpers_left() == [f"/{name}"]
    remove_helpers(engine, INSTALLATION)
    assert box.helpers_left() == []
