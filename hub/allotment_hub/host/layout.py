"""The data directory's folders, configuration files, secrets and lasting choices."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from allotment_hub.host.files import ensure_secret, private_folder, write_private
from allotment_hub.host.ownership import give_file, make_parents, settle
from allotment_hub.host.processes import recall
from allotment_hub.host.specs import SERVICES
from allotment_hub.host.unix_account import UnixAccount
from allotment_hub.paths import Paths
from allotment_hub.runtime import Runtime

__all__ = ["SECRETS", "installation_id", "lay_out", "read_runtime", "read_secret_text", "running_services"]

SECRETS = ("hub-to-broker", "broker-service", "proxy", "cookie", "admin")


def lay_out(paths: Paths, *, defaults: Path, account: UnixAccount | None = None) -> dict[str, str]:
    """Make what is missing; nothing that is there is changed. Returns the secrets by name.

    As root, every folder gets its owner: root keeps those that it writes itself (so that no link of
    another account can lead it astray), open for the account to read; the rest is the account's.
    """
    if os.geteuid() == 0:
        _settle(paths, account)
    else:
        for folder in (*_kept(paths), *_given(paths)):
            private_folder(folder)
    for path in (paths.site, paths.catalog):
        if not path.exists():
            write_private(path, (defaults / path.name).read_text(encoding="utf-8"))
    return {name: ensure_secret(paths.secrets, name) for name in SECRETS}


def _kept(paths: Paths) -> dict[Path, int]:
    """Folders of whoever starts the services, with their mode where another account runs these."""
    run = paths.runtime.parent
    return {paths.data: 0o710, run: 0o750, paths.logs: 0o750, paths.agent_state: 0o710}


def _given(paths: Paths) -> tuple[Path, ...]:
    """Folders that only the services write."""
    parts = (paths.secrets, paths.homes, paths.hub, paths.broker_database.parent, paths.site.parent)
    return (*parts, paths.datasets, paths.logs / "sessions")


def _settle(paths: Paths, account: UnixAccount | None) -> None:
    make_parents(paths.data)
    uid, gid = (account.uid, account.gid) if account else (0, 0)
    for folder, mode in _kept(paths).items():
        data = folder == paths.data  # may be a link to another disk; its parts are settled one by one
        settle(folder, uid=0, gid=gid, mode=mode if account else 0o700, follow=data, deep=not data)
    for folder in _given(paths):
        settle(folder, uid=uid, gid=gid, mode=0o700)
    backups = paths.data / "backups"
    if backups.exists():
        settle(backups, uid=0, gid=0, mode=0o700)
    give_file(paths.data / "installation", uid=0, gid=0)
    give_file(paths.connection, uid=uid, gid=gid)


def installation_id(paths: Paths) -> str:
    """8 hex digits, made once; everything that we make on this machine bears them."""
    path = paths.data / "installation"
    if path.exists():
        return path.read_text(encoding="ascii").strip()
    made = secrets.token_hex(4)
    write_private(path, made + "\n")
    return made


def running_services(paths: Paths) -> list[str]:
    """Services of an earlier supervisor that still run."""
    return [name for name in SERVICES if recall(paths.runtime.parent / f"{name}.pid") is not None]


def read_runtime(paths: Paths) -> Runtime | None:
    """What the last `up` decided; None when there was none, or another version wrote it."""
    try:
        return Runtime.model_validate_json(paths.runtime.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None


def read_secret_text(paths: Paths, name: str) -> str:
    """One secret's line."""
    return (paths.secrets / name).read_text(encoding="utf-8").strip()
