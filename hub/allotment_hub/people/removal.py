"""The end of a home: its volume, or what is in its folder, removed by a helper as its owner."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from allotment_spawner.engines.helpers import Helpers
from allotment_spawner.launch.container import HomeMount, Owner
from allotment_spawner.launch.helper import HELPER_HOME, home_at

from allotment_hub.host.errors import HostError

__all__ = ["remove_home"]

EMPTY_SCRIPT: Final = """
cd "$1" || exit 90
find . -xdev -type d ! -perm -u=rwx -exec chmod u+rwx {} \\;
find . -xdev -mindepth 1 -delete
"""
LIMIT_S: Final = 24 * 3600.0


def remove_home(helpers: Helpers, *, user: str, home: HomeMount, owner: Owner) -> str:
    """Gone already is fine. Returns what is left to do by hand, or nothing; `HostError` when files stay."""
    if helpers.exists(home) is False:
        return ""
    if home.kind == "volume":
        helpers.remove_volume(home)
        return ""
    done = helpers.run(
        "erase",
        user,
        argv=["sh", "-c", EMPTY_SCRIPT, "erase", HELPER_HOME],
        owner=owner,
        mounts=[home_at(home, read_only=False)],
        limit_s=LIMIT_S,
    )
    if done.code != 0:
        raise HostError(
            f"Not everything in {home.source} could be removed: {done.complaint}. Files of other "
            f"accounts? As root: rm -rf --one-file-system {home.source}"
        )
    return _drop(Path(home.source))


def _drop(folder: Path) -> str:
    """The empty folder itself; only its parent's owner may."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"The empty folder {folder} stays ({error.strerror}); remove it as root: rmdir {folder}"
    return ""
