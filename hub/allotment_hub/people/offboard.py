"""A person leaves: sessions and account end; the home is packed, handed over, erased; then it is noted."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from allotment_spawner.engines.helpers import Helpers
from allotment_spawner.engines.owners import OwnerRule
from allotment_spawner.launch.container import HomeMount, Owner, home_mount

from allotment_hub.host.errors import HostError
from allotment_hub.people.archive import pack
from allotment_hub.people.hand_over import folder_name, hand_over
from allotment_hub.people.journal import Journal, Leaving
from allotment_hub.people.removal import remove_home

__all__ = ["AccountsApi", "Homes", "Offboarding"]

SESSIONS_LIMIT_S: Final = 120.0


class AccountsApi(Protocol):
    """The hub's accounts. `HostError` says what the hub refused."""

    def exists(self, name: str) -> bool: ...

    def remove(self, name: str) -> None:
        """End the account and its sessions."""


@dataclass(frozen=True, slots=True)
class Homes:
    """Where homes of this installation lie and whose they are. `archive` is the folder for packed ones."""

    template: str
    installation: str
    rule: OwnerRule
    archive: Path

    def mount_of(self, user: str) -> HomeMount:
        return home_mount(self.template, installation=self.installation, user=user)

    def owner_of(self, user: str) -> Owner:
        """Raises `HomeUnavailable`."""
        return self.rule.account_of(user).owner


class Offboarding:
    """Each step is written down when it is done and harmless when repeated: a run that was killed anywhere is
    finished by running it again. `sessions_of` counts a person's containers on the engine.
    """

    def __init__(
        self,
        *,
        accounts: AccountsApi,
        helpers: Helpers,
        homes: Homes,
        journal: Journal,
        sessions_of: Callable[[str], int],
        settle: Callable[[str, str], None],
        say: Callable[[str], None],
        progress: Callable[[int], None] = lambda _bytes: None,
        on_step: Callable[[str], None] = lambda _step: None,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._accounts = accounts
        self._helpers = helpers
        self._homes = homes
        self._journal = journal
        self._sessions_of = sessions_of
        self._settle = settle
        self._say = say
        self._progress = progress
        self._on_step = on_step
        self._monotonic = monotonic
        self._pause = pause

    def run(self, leaving: Leaving) -> None:
        """Do what is not done yet. `HostError` and `Refusal` say what kept it; then run it again."""
        self._not_another(leaving)
        self._journal.save(leaving)
        for name, step in (
            ("account", self._end_account),
            ("pack", self._pack),
            ("hand over", self._hand_over),
            ("remove", self._remove),
            ("note", self._note),
        ):
            if name in leaving.done:
                continue
            self._on_step(f"{name}.before")
            leaving = step(leaving).with_done(name)
            self._on_step(f"{name}.after")
            self._journal.save(leaving)
        self._on_step("close")
        self._journal.close()

    def _not_another(self, leaving: Leaving) -> None:
        """The name may have been given to somebody new since an earlier run ended the account."""
        if "account" in leaving.done and leaving.ends_home and self._accounts.exists(leaving.user):
            raise HostError(
                f"There is an account {leaving.user} again since the earlier run; the home may be in use: "
                f"nothing more was done to it. Remove {self._journal.path} to keep the home for this account."
            )

    def check(self, leaving: Leaving) -> None:
        """What can be known to fail, before anything is done."""
        self._not_another(leaving)
        if not leaving.ends_home:
            return
        self._homes.owner_of(leaving.user)
        if leaving.hand_over is not None:
            to = leaving.hand_over
            self._homes.owner_of(to)
            if self._helpers.exists(self._homes.mount_of(to)) is False:
                raise HostError(f"{to} has no home yet; let {to} start a session once, then run this again.")

    def _end_account(self, leaving: Leaving) -> Leaving:
        user = leaving.user
        if self._accounts.exists(user):
            self._accounts.remove(user)
            self._say(f"The account of {user} and its sessions were ended.")
        limit = self._monotonic() + SESSIONS_LIMIT_S
        while (count := self._sessions_of(user)) > 0:
            if self._monotonic() > limit:
                raise HostError(
                    f"{count} of {user}'s sessions still run; end them (`allot leases`), and run this again."
                )
            self._pause(0.2)
        return leaving

    def _pack(self, leaving: Leaving) -> Leaving:
        if not leaving.needs_pack:
            return leaving
        user = leaving.user
        home = self._homes.mount_of(user)
        if self._helpers.exists(home) is False:
            self._say(f"{user} has no home; there is nothing to keep.")
            return leaving
        made = pack(
            self._helpers,
            user=user,
            home=home,
            owner=self._homes.owner_of(user),
            target=self._target(leaving),
            progress=self._progress,
            on_step=self._on_step,
        )
        self._say(f"Packed {made.entries} files and folders into {made.path} and read them back.")
        return leaving.with_packed(made)

    def _target(self, leaving: Leaving) -> Path:
        name = folder_name(leaving.user, leaving.stamp).removeprefix("from-")
        return self._homes.archive / f"{name}.tar.gz"

    def _hand_over(self, leaving: Leaving) -> Leaving:
        to, packed = leaving.hand_over, leaving.packed
        if to is None or packed is None:
            return leaving
        folder = folder_name(leaving.user, leaving.stamp)
        hand_over(
            self._helpers,
            user=leaving.user,
            packed=packed,
            to=to,
            home=self._homes.mount_of(to),
            owner=self._homes.owner_of(to),
            folder=folder,
        )
        self._say(f"{to} finds the files in the folder {folder} of the own home.")
        return leaving

    def _remove(self, leaving: Leaving) -> Leaving:
        if not leaving.ends_home:
            self._say(f"The home of {leaving.user} stays as it is.")
            return leaving
        user = leaving.user
        left = remove_home(
            self._helpers, user=user, home=self._homes.mount_of(user), owner=self._homes.owner_of(user)
        )
        self._say(f"The home of {user} was removed.")
        if left:
            self._say(left)
        if leaving.packed is not None and not leaving.archive:
            Path(leaving.packed.path).unlink(missing_ok=True)
        return leaving

    def _note(self, leaving: Leaving) -> Leaving:
        if leaving.ends_home:
            self._settle(leaving.user, "archived" if leaving.archive and leaving.packed else "erased")
        return leaving
