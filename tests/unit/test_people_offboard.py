"""A name that is given away again while the leaving of its first owner is unfinished."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from allotment_hub.host.errors import HostError
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
