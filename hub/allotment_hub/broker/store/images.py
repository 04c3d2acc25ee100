"""The table of images: which there are of each environment, by digest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from allotment_spawner.launch.names import version_of
from sqlalchemy import Connection, insert, select, update

from allotment_hub.broker.store.schema import images, saved_environments

__all__ = ["KEPT", "REMOVED", "RETIRED", "Image", "add", "change", "read", "saved_bases"]

KEPT: Final = "kept"
RETIRED: Final = "retired"
REMOVED: Final = "removed"
_REFUSED: Final = "refused"


@dataclass(frozen=True, slots=True)
class Image:
    """One row. `state`: kept (may be started), retired (may not), removed (not on this machine any more).

    `source` is repository@digest where a registry has it, `base` the environment whose groups may use it
    where catalog.yaml does not name its own. `removing_at`: since when its removal is under way.
    """

    digest: str
    environment: str
    reference: str
    source: str | None
    label: str
    title: str
    description: str
    packages: dict[str, str]
    requires: dict[str, str]
    size_bytes: int | None
    made_at: datetime | None
    added_at: datetime
    state: str
    pinned: bool = False
    replaced_by: str | None = None
    base: str | None = None
    removing_at: datetime | None = None

    @property
    def version(self) -> str:
        return version_of(self.digest)

    @property
    def startable(self) -> bool:
        return self.state == KEPT and self.removing_at is None


def read(connection: Connection) -> list[Image]:
    """All rows; the one that was added last comes first."""
    rows = connection.execute(select(images).order_by(images.c.added_at.desc(), images.c.digest)).mappings()
    return [Image(**{**row, "pinned": bool(row["pinned"])}) for row in rows]


def add(connection: Connection, image: Image) -> None:
    values = {column.name: getattr(image, column.name) for column in images.columns}
    connection.execute(insert(images).values(**{**values, "pinned": int(image.pinned)}))


def change(connection: Connection, digest: str, **values: Any) -> None:
    """Write these columns of one row."""
    if "pinned" in values:
        values["pinned"] = int(values["pinned"])
    connection.execute(update(images).where(images.c.digest == digest).values(**values))


def saved_bases(connection: Connection) -> Mapping[str, str]:
    """Digest -> the name of a saved environment that is built upon it or waits for an answer."""
    query = select(saved_environments.c.base_digest, saved_environments.c.name).where(
        saved_environments.c.state != _REFUSED
    )
    return {row[0]: row[1] for row in connection.execute(query).all()}
