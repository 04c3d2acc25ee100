"""A home as a folder of this host: made once, given to its owner, never looked into."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

from allotment_spawner.core.errors import HomeUnavailable
from allotment_spawner.launch.container import Owner

__all__ = ["ensure_home_folder"]

_UNMAPPED: Final = 65534
"""An owner that this host cannot name (NFS without the same accounts): nothing can be said of it."""
_UNFINISHED: Final = 0o1700
"""Made here and not given to its owner yet."""


def ensure_home_folder(path: Path, owner: Owner) -> bool:
    """The folder `path`, owned by `owner` and closed to all others; what exists stays as it is. Whether this
    call made it. Blocks as long as the file system does: call it in a thread.

    Only the folder itself is ever given away, and only when it was made here: no walk, no change of
    what lies in it. Until it is given away it bears a sticky bit, so that after a kill in between the
    next start knows it for its own and finishes. `HomeUnavailable` says who must make it where this
    process may not (root without rights on NFS, an ordinary account).
    """
    found = _look(path)
    made = False
    if found is None:
        try:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            path.mkdir(mode=_UNFINISHED)
            made = True
        except FileExistsError:
            pass  # another start of the same person was faster
        except OSError as error:
            raise _cannot_make(path, owner, error) from error
        found = _look(path)
    if found is not None and _ours_unfinished(found, owner):
        _give(path, owner)
        found = _look(path)
    _check(path, found, owner)
    return made


def _ours_unfinished(found: os.stat_result, owner: Owner) -> bool:
    mine = found.st_uid == os.geteuid()
    return mine and stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == _UNFINISHED


def _give(path: Path, owner: Owner) -> None:
    # a group that is not ours to give matters less than the owner
    gid = owner.gid if os.geteuid() == 0 or owner.gid in os.getgroups() else -1
    try:
        if os.geteuid() != owner.uid or gid != -1:
            os.chown(path, owner.uid, gid, follow_symlinks=False)
        path.chmod(0o700)
    except FileNotFoundError as error:
        raise _cannot_make(path, owner, error) from error
    except OSError as error:
        # an empty folder of the wrong owner would be in the way of whoever makes it right
        with contextlib.suppress(OSError):
            path.rmdir()
        raise _cannot_make(path, owner, error) from error


def _look(path: Path) -> os.stat_result | None:
    """None where nothing is. A path that this process may not look at is the engine's to find."""
    try:
        return path.stat()
    except FileNotFoundError:
        if path.is_symlink():
            raise HomeUnavailable(
                f"Your home {path} is a link that leads nowhere.",
                "An operator must repair it; perhaps a disk is not mounted.",
            ) from None
        return None
    except NotADirectoryError:
        return None
    except PermissionError:
        return os.stat_result((stat.S_IFDIR | 0o777, 0, 0, 0, _UNMAPPED, _UNMAPPED, 0, 0, 0, 0))
    except OSError as error:
        raise HomeUnavailable(
            f"The disk with your home does not do what it should ({error.strerror}).",
            "Try again in a minute; tell an operator if it stays.",
        ) from error


def _check(path: Path, found: os.stat_result | None, owner: Owner) -> None:
    """What a session could not write in would only end in a server that does not start."""
    if found is None or not stat.S_ISDIR(found.st_mode):
        raise HomeUnavailable(f"Your home {path} is no folder.", "An operator must look at it.")
    if found.st_uid == owner.uid or found.st_uid == _UNMAPPED:
        return
    by_group = found.st_gid in (owner.gid, *owner.groups) and found.st_mode & 0o070 == 0o070
    if not by_group and found.st_mode & 0o007 != 0o007:
        raise HomeUnavailable(
            f"Your home {path} belongs to uid {found.st_uid}; your sessions run as uid {owner.uid}.",
            f"An operator can give it to you: chown {owner.uid}:{owner.gid} {path}",
        )


def _cannot_make(path: Path, owner: Owner, error: OSError) -> HomeUnavailable:
    why = error.strerror or type(error).__name__
    return HomeUnavailable(
        f"You have no home yet, and this service may not make {path} for uid {owner.uid} ({why}).",
        f"An operator must make it where that is allowed, as root on the file server perhaps: "
        f"install -d -m 0700 -o {owner.uid} -g {owner.gid} {path}",
    )
