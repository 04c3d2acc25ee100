"""Whose files a home holds: numbers that are the same for everybody, or those this system knows."""

from __future__ import annotations

import grp
import os
import pwd
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from allotment_spawner.core.errors import HomeUnavailable
from allotment_spawner.launch.container import Owner

__all__ = ["Account", "AccountSource", "OwnerRule", "SystemAccounts", "account_name"]

FIRST_UID: Final = 1000
"""Below lie the system's own accounts; what they own must not be a person's."""
NOBODY: Final = frozenset({65534, 2**32 - 1, 2**32 - 2})
MOST_GROUPS: Final = 64
_NAME: Final = re.compile(r"[a-z_][a-z0-9_-]{0,31}")


@dataclass(frozen=True, slots=True)
class Account:
    """A person as files know them. `group_names`: gid -> name, as far as the system has one."""

    owner: Owner
    name: str
    group_names: Mapping[int, str] = field(default_factory=dict)


class AccountSource(Protocol):
    """Where accounts are looked up; may take long (a directory server), so it is asked in a thread."""

    def account(self, user: str) -> Account:
        """Raises KeyError for a person that is not known there."""


class SystemAccounts:
    """This system's name service (files, LDAP, SSSD: what nsswitch.conf says)."""

    def __init__(
        self,
        *,
        by_name: Callable[[str], pwd.struct_passwd] = pwd.getpwnam,
        groups_of: Callable[[str, int], Sequence[int]] = os.getgrouplist,
        group_name: Callable[[int], str] = lambda gid: grp.getgrgid(gid).gr_name,
    ) -> None:
        self._by_name = by_name
        self._groups_of = groups_of
        self._group_name = group_name

    def account(self, user: str) -> Account:
        found = self._by_name(user)
        groups = [gid for gid in self._groups_of(found.pw_name, found.pw_gid) if gid != found.pw_gid]
        # docker, disk, shadow and the like say something about this host, not about the person's files
        further = tuple(sorted(gid for gid in set(groups) if gid >= FIRST_UID and gid not in NOBODY))
        owner = Owner(uid=found.pw_uid, gid=found.pw_gid, groups=further[:MOST_GROUPS])
        names = {gid: self._name_of(gid) for gid in (owner.gid, *owner.groups)}
        known = {gid: name for gid, name in names.items() if name}
        return Account(owner=owner, name=account_name(found.pw_name, owner.uid), group_names=known)

    def _name_of(self, gid: int) -> str:
        try:
            return self._group_name(gid)
        except KeyError:
            return ""


@dataclass(frozen=True, slots=True)
class OwnerRule:
    """site.yaml's `homes.owner`. `source` is asked only for `nss`."""

    kind: Literal["fixed", "nss"] = "fixed"
    fixed: Owner = field(default_factory=Owner)
    source: AccountSource = field(default_factory=SystemAccounts)

    def account_of(self, user: str) -> Account:
        """May wait for the name service. `HomeUnavailable` for nobody, root and the system's accounts."""
        if self.kind == "fixed":
            return Account(owner=self.fixed, name=account_name(user, self.fixed.uid))
        try:
            found = self.source.account(user)
        except (KeyError, ValueError):
            raise HomeUnavailable(
                f"This system knows no account {user!r}, so it is not known whose files yours would be.",
                "Ask an operator for an account on this machine, under exactly this name.",
            ) from None
        except OSError as error:
            raise HomeUnavailable(
                f"This system's accounts cannot be read now ({error.strerror or type(error).__name__}).",
                "Try again in a minute; tell an operator if it stays.",
            ) from error
        uid, gid = found.owner.uid, found.owner.gid
        if uid < FIRST_UID or uid in NOBODY or gid == 0:
            raise HomeUnavailable(
                f"{user!r} is an account of the system itself (uid {uid}, gid {gid}), "
                "and sessions do not run as such.",
                "Sign in under your own account; an operator can see why: getent passwd NAME.",
            )
        return found


def account_name(user: str, uid: int) -> str:
    """How the container calls this uid: the person's own name where Unix takes it, else `u<uid>`."""
    return user if _NAME.fullmatch(user) else f"u{uid}"
