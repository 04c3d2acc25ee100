"""Before another version of the code starts: copies of the databases, then the hub's own migration."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from allotment_hub.host.errors import HostError
from allotment_hub.host.files import private_folder
from allotment_hub.host.rotation import tail
from allotment_hub.host.specs import CONFIG_FILE, account_env
from allotment_hub.host.unix_account import UnixAccount
from allotment_hub.paths import Paths

__all__ = ["back_up", "migrate_hub"]

KEEP = 5


def back_up(paths: Paths, *, old_code: str, now: datetime) -> Path | None:
    """Copy every SQLite database (consistent even while one is open); None when there is none yet."""
    found = [path for path in (paths.hub / "jupyterhub.sqlite", paths.broker_database) if path.exists()]
    if not found:
        return None
    folder = paths.data / "backups" / f"{now:%Y%m%dT%H%M%SZ}-{old_code}"
    private_folder(folder)
    try:
        for path in found:
            _copy(path, folder / path.name)
    except (sqlite3.Error, OSError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise HostError(f"The databases could not be backed up before the update ({error}).") from None
    for old in sorted(folder.parent.iterdir())[:-KEEP]:
        shutil.rmtree(old, ignore_errors=True)
    return folder


def migrate_hub(paths: Paths, *, env: Mapping[str, str], account: UnixAccount | None = None) -> None:
    """The hub's schema; the broker migrates its own when it starts. Does nothing when it fits.

    As the account that the hub runs as, so that no file of root's lies in its way.
    """
    log = paths.logs / "upgrade.log"
    with log.open("ab") as stream:
        done = subprocess.run(
            [sys.executable, "-m", "jupyterhub", "upgrade-db", "-f", str(CONFIG_FILE)],
            check=False,
            cwd=paths.hub,
            env={**account_env(env, account), "ALLOTMENT_DATA": str(paths.data)},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=() if account else None,
            umask=0o077 if account else -1,
        )
    if done.returncode != 0:
        last = (tail(log, lines=1) or ["no output"])[0]
        raise HostError(f"The hub's database could not be brought to this version ({last}); see {log}.")


def _copy(source: Path, target: Path) -> None:
    with sqlite3.connect(f"file:{source}?mode=ro", uri=True) as old, sqlite3.connect(target) as new:
        old.backup(new)
    old.close()
    new.close()
    target.chmod(0o600)
