"""Moves an overlay aside, or starts it clean; both at once, however big it is."""

from __future__ import annotations

import contextlib
import errno
import shutil
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from allotment.packages.layout import Overlay
from allotment.packages.lock import locked

__all__ = ["move_aside", "start_clean"]

_GOING = ".deleting-"


def move_aside(overlay: Overlay) -> Path | None:
    """Where it lies now; None when there is none. Raises `LockUnavailable`, `OSError`."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return _take_away(overlay, f"{Path(overlay.root).name}.aside-{stamp}-{uuid.uuid4().hex[:4]}")


def start_clean(overlay: Overlay) -> bool:
    """Delete it; False when there was none. What a killed call left is deleted, too. Errors as above.

    It is gone by one rename; deleting the files may take its time and may be cut short.
    """
    gone = _take_away(overlay, f"{_GOING}{uuid.uuid4().hex}")
    for left in sorted(Path(overlay.folder).glob(f"{_GOING}*")):
        if left.is_symlink():
            left.unlink()
        else:
            shutil.rmtree(left)
    return gone is not None


def _take_away(overlay: Overlay, name: str) -> Path | None:
    root = Path(overlay.root)
    with _locked_if_possible(overlay):
        if not root.is_dir():
            return None
        gone = root.rename(root.with_name(name))
        with contextlib.suppress(OSError):
            # for kernels that run: Python remembers of a missing folder that it is missing
            Path(overlay.site_packages).mkdir(mode=0o700, parents=True)
    return gone


@contextlib.contextmanager
def _locked_if_possible(overlay: Overlay) -> Iterator[None]:
    """A full home must still be cleaned, even if not one more file fits."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(overlay.lock))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
        yield
