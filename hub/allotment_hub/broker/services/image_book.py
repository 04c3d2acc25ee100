"""Which images there are, in memory: what is offered, what may be named, what replaces what."""

from __future__ import annotations

from collections.abc import Iterable

from allotment_hub.broker.store.images import REMOVED, Image

__all__ = ["ImageBook"]


class ImageBook:
    """The table's rows, newest first; written only after a commit."""

    def __init__(self) -> None:
        self._rows: list[Image] = []

    def replace(self, rows: Iterable[Image]) -> None:
        self._rows = list(rows)

    def all(self) -> list[Image]:
        return list(self._rows)

    def get(self, digest: str) -> Image | None:
        return next((row for row in self._rows if row.digest == digest), None)

    def of(self, environment: str) -> list[Image]:
        """Its images that were not removed, newest first."""
        return [row for row in self._rows if row.environment == environment and row.state != REMOVED]

    def offered(self, environment: str) -> Image | None:
        """What a start takes that names no version: the pinned image, else the newest."""
        startable = [row for row in self.of(environment) if row.startable]
        return next((row for row in startable if row.pinned), startable[0] if startable else None)

    def named(self, environment: str, version: str) -> Image | None:
        """Also a retired or removed one."""
        return next(
            (row for row in self._rows if row.environment == environment and row.version == version), None
        )

    def successor(self, image: Image) -> Image | None:
        """What to take in place of one that may not be started any more."""
        if image.replaced_by is not None:
            named = self.named(image.environment, image.replaced_by)
            if named is not None and named.startable:
                return named
        return self.offered(image.environment)

    def based_elsewhere(self) -> dict[str, str]:
        """Environments that follow another one's rule -> that one."""
        return {
            row.environment: row.base for row in reversed(self._rows) if row.base and row.state != REMOVED
        }
