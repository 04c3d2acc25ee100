"""A system account of one test, and mounts in which it can read the checkout and this Python."""

from __future__ import annotations

import secrets
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from allotment_hub.host.checkout import CHECKOUT

__all__ = ["other_account", "person_account", "readable_by_all"]


@contextmanager
def other_account() -> Iterator[str]:
    """Its name; it has no home and no password, and is removed at the end."""
    name = f"allot-{secrets.token_hex(4)}"
    subprocess.run(["useradd", "--system", "--user-group", "--no-create-home", name], check=True)
    try:
        yield name
    finally:
        subprocess.run(["userdel", name], check=True, capture_output=True)


@contextmanager
def person_account() -> Iterator[tuple[str, str]]:
    """(name, group) of a person of this system: an ordinary uid, and a group that people share."""
    mark = secrets.token_hex(4)
    name, group = f"allot-{mark}", f"team-{mark}"
    subprocess.run(["groupadd", group], check=True)
    try:
        options = ["--user-group", "--no-create-home", "--groups", group]
        subprocess.run(["useradd", *options, name], check=True)
        try:
            yield name, group
        finally:
            subprocess.run(["userdel", name], check=True, capture_output=True)
    finally:
        subprocess.run(["groupdel", group], check=True, capture_output=True)


def readable_by_all(stash: Path, *more: Path) -> tuple[str, ...]:
    """A command's beginning: in mounts of its own, every account can reach Python, checkout and `more`.

    The folders that are closed to others (such as /root) are covered there by open ones that hold nothing
    else; outside nothing changes. `stash` is an empty folder.
    """
    places = sorted({Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), CHECKOUT, *more})
    hidden = {place: gate for place in places if (gate := _gate(place)) is not None}
    lines = ["set -eu", _run("mount", "-t", "tmpfs", "tmpfs", stash)]
    for number, place in enumerate(hidden):
        kept = stash / str(number)
        lines += [_run("mkdir", kept), _run("mount", "--bind", place, kept)]
    lines += [_run("mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", gate) for gate in set(hidden.values())]
    for number, place in enumerate(hidden):
        lines += [_run("mkdir", "-p", place), _run("mount", "--bind", stash / str(number), place)]
    lines.append('exec "$@"')
    return ("unshare", "--mount", "sh", "-c", "\n".join(lines), "sh")


def _gate(place: Path) -> Path | None:
    """The first folder on the way that is closed to others."""
    way = [*reversed(place.parents), place]
    return next((folder for folder in way if not folder.stat().st_mode & 0o001), None)


def _run(*words: str | Path) -> str:
    return shlex.join(map(str, words))
