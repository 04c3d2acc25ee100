"""A packed home as a folder in somebody else's, unpacked by a helper as that person."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from allotment_spawner.engines.helpers import Helpers
from allotment_spawner.launch.container import HomeMount, Owner
from allotment_spawner.launch.helper import HELPER_HOME, HelperMount, home_at
from allotment_spawner.launch.names import safe_name

from allotment_hub.host.errors import HostError
from allotment_hub.people.journal import Packed

__all__ = ["folder_name", "hand_over"]

ARCHIVE_INSIDE: Final = "/mnt/archive.tar.gz"
LIMIT_S: Final = 24 * 3600.0
UNPACK_SCRIPT: Final = """
set -e
cd "$1"
if [ -d "$3" ] && [ ! -L "$3" ]; then echo "there already"; exit 0; fi
part=".$3.part"
if [ -d "$part" ] && [ ! -L "$part" ]; then
  find "./$part" -type d ! -perm -u=rwx -exec chmod u+rwx {} \\;
fi
rm -rf -- "./$part"
mkdir -m 0700 -- "./$part"
tar --extract --gzip --file="$2" --directory="./$part" --no-same-owner --no-same-permissions
python3 -I -S -c "$4" "./$part"
mv -T -- "./$part" "./$3"
"""
"""Its own folder appears under its name when it is whole, so trying again is harmless."""
DEFUSE: Final = """
import os, stat, sys
top = os.path.realpath(sys.argv[1])
os.chdir(top)
left, folders = [], ["."]

def leads_out(path, target):
    # what is too long to be followed cannot be judged
    real = os.path.realpath(path)
    known = len(os.fsencode(top)) + len(os.fsencode(path)) + len(os.fsencode(target)) < 4000
    return not known or (real != top and not real.startswith(top + os.sep))

while folders:
    with os.scandir(folders.pop()) as found:
        entries = list(found)
    for entry in entries:
        path, seen = entry.path, entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(seen.st_mode):
            target = os.readlink(path)
            if leads_out(path, target):
                left.append(f"{os.path.relpath(path, '.')} -> {target}")
                os.unlink(path)
        elif not (stat.S_ISDIR(seen.st_mode) or stat.S_ISREG(seen.st_mode)):
            os.unlink(path)
        else:
            os.chmod(path, stat.S_IMODE(seen.st_mode) & 0o777 | stat.S_IRUSR | stat.S_IWUSR)
            if stat.S_ISDIR(seen.st_mode):
                folders.append(path)
if left:
    with open(os.path.join(top, "LINKS-LEFT-OUT.txt"), "w", errors="surrogateescape") as file:
        file.write("Links that led out of this folder, now into your own files, were left out:\\n")
        file.write("".join(line + "\\n" for line in left))
"""
"""Both homes are at the same path inside a session: a link of the one into its home would be a link into
the other's."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


def folder_name(user: str, stamp: str) -> str:
    """Of the folder that the other person gets."""
    return f"from-{user if _PLAIN.fullmatch(user) else safe_name(user)}-{stamp}"


@contextmanager
def _readable_by(archive: Path, owner: Owner) -> Iterator[None]:
    """The helper is not root. Without root's rights the file is open to all for a while, in a folder that
    is not."""
    before = archive.stat()
    root = os.geteuid() == 0
    if root:
        os.chown(archive, owner.uid, -1)
    else:
        archive.chmod(0o644)
    try:
        yield
    finally:
        if root:
            os.chown(archive, before.st_uid, -1)
        archive.chmod(0o600)


def hand_over(
    helpers: Helpers, *, user: str, packed: Packed, to: str, home: HomeMount, owner: Owner, folder: str
) -> None:
    """Unpack into `folder` in the home of `to`; done already is fine. `HostError` says what kept it."""
    archive = Path(packed.path)
    with _readable_by(archive, owner):
        done = helpers.run(
            "hand-over",
            user,
            argv=["sh", "-c", UNPACK_SCRIPT, "unpack", HELPER_HOME, ARCHIVE_INSIDE, folder, DEFUSE],
            owner=owner,
            mounts=[
                home_at(home, read_only=False),
                HelperMount(kind="bind", source=str(archive), target=ARCHIVE_INSIDE),
            ],
            limit_s=LIMIT_S,
        )
    if done.code != 0:
        raise HostError(
            f"The files of {user} could not be put into the home of {to}: {done.complaint}. Is that home "
            f"full? The archive is {archive}; make room and run this again."
        )
