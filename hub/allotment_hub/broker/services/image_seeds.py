"""What `up` found on this machine, against what the table says (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from allotment_hub.broker.store.images import KEPT, REMOVED, Image
from allotment_hub.runtime import EnvironmentImage, Runtime

__all__ = ["after_all", "sown"]


def sown(rows: Sequence[Image], runtime: Runtime, now: datetime) -> list[tuple[bool, Image]]:
    """(whether it is new, row) for every row that must be written; `rows` newest first.

    An image becomes the newest when it is new, or when its name moved back to it; a start of `up` alone
    changes nothing, so what was pulled since stays the newest. What is on no machine any more and in no
    registry is removed.
    """
    seeds = {
        seed.digest: (name, seed) for name, seed in runtime.environments.items() if seed.digest is not None
    }
    known = {row.digest: row for row in rows}
    found: list[tuple[bool, Image]] = []
    for digest, (name, seed) in seeds.items():
        old = known.get(digest)
        new = _row(name, digest, seed, old, after_all(rows, name, now))
        if old is not None and old.state != REMOVED and not _moved_back(old, new, rows):
            new = replace(new, added_at=old.added_at)
        if old is None or new != old:
            found.append((old is None, new))
    here = runtime.images_here
    if here is not None:
        lost = (row for row in rows if row.digest not in seeds and row.digest not in here)
        found += [
            (False, replace(row, state=REMOVED, pinned=False, removing_at=None))
            for row in lost
            if row.state != REMOVED and row.source is None
        ]
    return found


def after_all(rows: Sequence[Image], environment: str, now: datetime) -> datetime:
    """Now, or a moment after the newest image of the environment where the clock was set back since."""
    added = [row.added_at + timedelta(microseconds=1) for row in rows if row.environment == environment]
    return max(now, *added, now)


def _row(name: str, digest: str, seed: EnvironmentImage, old: Image | None, now: datetime) -> Image:
    kept = old is not None and old.state != REMOVED
    return Image(
        digest=digest,
        environment=name,
        reference=seed.image or name,
        source=seed.source or (old.source if old is not None else None),
        label=seed.label,
        title=seed.title,
        description=seed.description,
        packages=dict(seed.packages),
        requires=dict(seed.requires),
        size_bytes=seed.size_bytes,
        made_at=seed.made_at,
        added_at=now,
        state=old.state if old is not None and kept else KEPT,
        pinned=old is not None and old.pinned and kept,
        replaced_by=old.replaced_by if old is not None and kept else None,
        base=old.base if old is not None else None,
        removing_at=old.removing_at if old is not None and kept else None,
    )


def _moved_back(old: Image, new: Image, rows: Sequence[Image]) -> bool:
    """Whether another image had this one's name last."""
    last = next((row for row in rows if row.reference == new.reference), None)
    return old.reference == new.reference and last is not None and last.digest != old.digest
