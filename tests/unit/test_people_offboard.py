"""Who leaves may wish those ill who stay: a name given away again, a home that is hard to hand over."""

from __future__ import annotations

import io
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from allotment_hub.host.errors import HostError
from allotment_hub.people.hand_over import DEFUSE, UNPACK_SCRIPT
from allotment_hub.people.journal import Journal, Leaving
from allotment_hub.people.offboard import Homes, Offboarding
from allotment_spawner.engines.helpers import Helpers
from allotment_spawner.engines.owners import OwnerRule

LEAVING = Leaving(user="ann", archive=False, hand_over=None, erase=True, began_at="2026-11-30T10:00:00+00:00")


class Accounts:
    """The hub's accounts, in memory."""

    def __init__(self, *names: str) -> None:
        self.names = set(names)

    def exists(self, name: str) -> bool:
        return name in self.names

    def remove(self, name: str) -> None:
        self.names.remove(name)


def offboarding(tmp_path: Path, accounts: Accounts) -> Offboarding:
    return Offboarding(
        accounts=accounts,
        # nobody listens there: whoever asks for the home fails otherwise than this test wants
        helpers=Helpers(installation="0123abcd", base_url=f"unix://{tmp_path}/none.sock"),
        homes=Homes(
            template="volume", installation="0123abcd", rule=OwnerRule(), archive=tmp_path / "archive"
        ),
        journal=Journal(folder=tmp_path / "offboard", user="ann"),
        sessions_of=lambda _user: 0,
        settle=lambda _user, _state: None,
        say=lambda _text: None,
    )


def test_the_home_of_a_new_account_of_that_name_is_left_alone(tmp_path: Path) -> None:
    ended = replace(LEAVING, done=("account",))
    for act in ("check", "run"):
        with pytest.raises(HostError, match="account ann again"):
            getattr(offboarding(tmp_path, Accounts("ann")), act)(ended)


def test_without_a_home_to_end_there_is_nothing_to_mind(tmp_path: Path) -> None:
    """Without an option the home stays, and is theirs again if they are added again."""
    ended = replace(LEAVING, erase=False, done=("account",))
    offboarding(tmp_path, Accounts("ann")).run(ended)
    assert not (tmp_path / "offboard" / "ann.json").exists()


def handed_over(home: Path, archive: Path) -> subprocess.CompletedProcess[str]:
    """What the helper runs, here."""
    argv = ["sh", "-c", UNPACK_SCRIPT, "unpack", str(home), str(archive), "from-ann", DEFUSE]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


def test_a_home_of_very_many_levels_is_handed_over_without_its_links(tmp_path: Path) -> None:
    """More levels than Python calls; the link at the bottom would lead into the files of who gets it."""
    deep = "d/" * 1150
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as tar:
        for name, target in ((f"{deep}out", "../" * 1152 + "x"), ("out", "/etc/passwd"), ("in", "d/d")):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
        file = tarfile.TarInfo(f"{deep}file")
        file.size = 2
        tar.addfile(file, io.BytesIO(b"ok"))
        fifo = tarfile.TarInfo("fifo")
        fifo.type = tarfile.FIFOTYPE
        tar.addfile(fifo)
    (tmp_path / "home").mkdir()
    done = handed_over(tmp_path / "home", tmp_path / "a.tar.gz")
    assert done.returncode == 0, done.stderr[-500:]
    got = tmp_path / "home" / "from-ann"
    assert sorted(one.name for one in got.iterdir()) == ["LINKS-LEFT-OUT.txt", "d", "in"]
    left = (got / "LINKS-LEFT-OUT.txt").read_text()
    assert "out -> /etc/passwd\n" in left
    assert f"{deep}out -> ../" in left
    find = ["find", ".", "-name", "file", "-o", "-name", "out"]
    assert (
        subprocess.run(find, cwd=got, capture_output=True, text=True, check=True).stdout == f"./{deep}file\n"
    )
    assert handed_over(tmp_path / "home", tmp_path / "a.tar.gz").stdout == "there already\n"
