"""The ordinary account that proxy, broker and hub run as when `up` is root; standard library only."""

from __future__ import annotations

import grp
import os
import pwd
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from allotment_hub.host.errors import HostError

__all__ = [
    "STAYS_ROOT",
    "RunAs",
    "UnixAccount",
    "check_account",
    "find_account",
    "ordinary",
    "socket_group",
    "sudo_name",
    "wanted_account",
]

STAYS_ROOT = (
    "All services run as root.",
    "Let an ordinary account that can read the checkout run them: ./deploy/up --user NAME.",
)
_UNIX = "unix://"
_UNREADABLE = 3
_READS = f"""
import os, sys
for path in sys.argv[1:]:
    try:
        os.close(os.open(path, os.O_RDONLY)) if not path.endswith("/") else os.stat(path + ".")
    except OSError:
        sys.stdout.write(path)
        sys.exit({_UNREADABLE})
import allotment_hub, allotment_spawner
"""


@dataclass(frozen=True, slots=True)
class RunAs:
    """What a process gives up being root for; `groups` are its only others."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class UnixAccount:
    name: str
    uid: int
    gid: int
    home: str

    @property
    def group(self) -> str:
        """The name of its group; `HostError` when that has none."""
        try:
            return grp.getgrgid(self.gid).gr_name
        except KeyError:
            raise HostError(f"The group {self.gid} of {self.name} has no name; add one.") from None


def find_account(name: str) -> UnixAccount:
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise HostError(f"There is no account {name!r} on this machine; --user names one that is.") from None
    return UnixAccount(name=name, uid=found.pw_uid, gid=found.pw_gid, home=found.pw_dir)


def ordinary(name: str | None) -> UnixAccount | None:
    """The account of this name, as in host.json; None where the services are not given one."""
    found = find_account(name) if name is not None else None
    return found if found is not None and found.uid != 0 else None


def sudo_name(env: Mapping[str, str]) -> str | None:
    """Who called sudo; None without it, or when root did."""
    number = env.get("SUDO_UID", "")
    if os.geteuid() != 0 or not number.isdigit() or int(number) == 0:
        return None
    try:
        return pwd.getpwuid(int(number)).pw_name
    except (KeyError, OverflowError):
        return None


def wanted_account(asked: str | None, *, kept: str | None, env: Mapping[str, str]) -> str | None:
    """The name given, else that of the last start, else the one behind sudo; None changes nothing."""
    if os.geteuid() != 0:
        if asked is not None and find_account(asked).uid != os.geteuid():
            raise HostError(f"Only root can run the services as {asked}; use sudo, or leave --user out.")
        return None
    return asked or kept or sudo_name(env)


def check_account(account: UnixAccount, *, reads: Sequence[Path] = (), enters: Sequence[Path] = ()) -> None:
    """Try it as that account: run this Python with our code, read these files, enter these folders."""
    remedy = f"give {account.name} access (a checkout in /opt is readable), or choose with --user."
    argv = [sys.executable, "-c", _READS, *map(str, reads), *(f"{folder}/" for folder in enters)]
    try:
        done = subprocess.run(
            argv,
            check=False,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            user=account.uid,
            group=account.gid,
            extra_groups=[],
        )
    except PermissionError:
        raise HostError(f"The account {account.name} cannot run {sys.executable}; {remedy}") from None
    if done.returncode == _UNREADABLE:
        raise HostError(f"The account {account.name} cannot read {done.stdout}; {remedy}")
    if done.returncode != 0:
        raise HostError(f"The account {account.name} cannot use the checkout; {remedy}")


def socket_group(url: str, account: UnixAccount) -> int | None:
    """The group that lets the account use this unix socket; None when it needs none or it is no socket."""
    if not url.startswith(_UNIX):
        return None
    found = Path(url.removeprefix(_UNIX)).stat()
    if not stat.S_ISSOCK(found.st_mode) or account.uid == found.st_uid or account.gid == found.st_gid:
        return None
    if found.st_mode & stat.S_IWOTH:
        return None
    if found.st_gid == 0 or not found.st_mode & stat.S_IWGRP:
        raise HostError(
            f"Docker's socket {url.removeprefix(_UNIX)} is open to root only; give it a group such as docker."
        )
    return found.st_gid
