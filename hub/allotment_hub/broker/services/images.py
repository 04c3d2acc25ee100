"""The life of an image: registered, offered, pinned, retired, removed. One short transaction each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol, TypeVar

from allotment_spawner.core.errors import InUse, NoSuchImage, UnknownEnvironment

from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.changes import Changes
from allotment_hub.broker.services.environments import Environments
from allotment_hub.broker.services.image_book import ImageBook
from allotment_hub.broker.services.image_seeds import after_all, sown
from allotment_hub.broker.services.image_views import ImageView, Register
from allotment_hub.broker.store import images as table
from allotment_hub.broker.store.images import KEPT, REMOVED, RETIRED, Image
from allotment_hub.broker.store.records import Lease
from allotment_hub.broker.store.store import Store
from allotment_hub.broker.store.transaction import Transaction
from allotment_hub.runtime import Runtime

__all__ = ["Images", "ImagesApi", "digest_of"]

T = TypeVar("T")


class ImagesApi(Protocol):
    """Images are named by digest, or by a version (its first 12 digits). Raises `NoSuchImage`."""

    async def listed(self, environment: str | None) -> list[ImageView]:
        """Newest first."""

    async def register(self, body: Register) -> ImageView:
        """It becomes the newest of its environment, also if it was known, retired or removed."""

    async def pin(self, image: str, *, on: bool) -> ImageView:
        """Offer this one, whatever is newer; off: the newest again."""

    async def retire(self, image: str, *, on: bool, replaced_by: str | None = None) -> ImageView:
        """No new start takes it; sessions that run it go on."""

    async def begin_removal(self, image: str) -> ImageView:
        """The fence before it is taken from the machine: from here on nobody starts with it.
        `InUse` while a live lease, a pin, the offer or a saved environment needs it."""

    async def end_removal(self, image: str, *, gone: bool) -> ImageView:
        """It is gone from the machine, or it stayed. `InUse` without `begin_removal`."""


def digest_of(lease: Lease) -> str | None:
    """The image that a lease runs or waits with."""
    launched = (lease.launch or {}).get("image_digest")
    return launched or (lease.wants or {}).get("digest")


class Images:
    """Implements `ImagesApi`; `ImageBook` is what everybody else reads."""

    def __init__(
        self,
        *,
        runtime: Runtime,
        store: Store,
        book: Book,
        images: ImageBook,
        environments: Environments,
        changes: Changes,
        clock: Callable[[], datetime],
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._book = book
        self._images = images
        self._environments = environments
        self._changes = changes
        self._clock = clock

    async def load(self) -> None:
        """Read the table, after what `up` found on this machine was written into it."""
        now = self._clock()
        rows = await self._store.read(lambda tx: table.read(tx.connection))
        if self._environments.on_images and sown(rows, self._runtime, now):
            rows = await self._store.write("seed_images", lambda tx: self._sow(tx, now))
        self._images.replace(rows)

    def _sow(self, tx: Transaction, now: datetime) -> list[Image]:
        for new, row in sown(table.read(tx.connection), self._runtime, now):
            if new:
                table.add(tx.connection, row)
            else:
                _write(tx, row)
        return table.read(tx.connection)

    async def listed(self, environment: str | None) -> list[ImageView]:
        return [self._view(row) for row in self._images.all() if environment in (None, row.environment)]

    async def register(self, body: Register) -> ImageView:
        known = self._environments.rule(body.environment)
        if known is None and self._environments.rule(body.base or "") is None:
            raise UnknownEnvironment(
                f"catalog.yaml names no environment {body.environment}.",
                "Name it there under environments, and restart with ./deploy/up.",
            )
        values = body.model_dump(exclude={"requires"})
        image = Image(
            **values,
            requires=body.requires.model_dump(exclude_none=True),
            added_at=self._clock(),
            state=KEPT,
        )

        def work(tx: Transaction) -> None:
            rows = table.read(tx.connection)
            old = next((row for row in rows if row.digest == body.digest), None)
            newest = replace(image, added_at=after_all(rows, body.environment, image.added_at))
            if old is None:
                table.add(tx.connection, newest)
            else:
                stays = old.environment == body.environment
                _write(tx, replace(newest, pinned=old.pinned and stays))

        await self._change("register_image", work)
        return self._view_of(body.digest)

    async def pin(self, image: str, *, on: bool) -> ImageView:
        def work(tx: Transaction) -> str:
            rows = table.read(tx.connection)
            found = _named(rows, image)
            if on and not found.startable:
                raise InUse("This image cannot be started, so it cannot be offered.", "Bring it back first.")
            for row in rows:
                if row.environment == found.environment and row.pinned:
                    table.change(tx.connection, row.digest, pinned=False)
            table.change(tx.connection, found.digest, pinned=on)
            return found.digest

        return self._view_of(await self._change("pin_image", work))

    async def retire(self, image: str, *, on: bool, replaced_by: str | None = None) -> ImageView:
        def work(tx: Transaction) -> str:
            rows = table.read(tx.connection)
            found = _named(rows, image)
            by = None
            if on and replaced_by is not None:
                instead = _named([row for row in rows if row.environment == found.environment], replaced_by)
                if instead.digest == found.digest:
                    raise NoSuchImage("An image cannot replace itself.", "Name another one.")
                by = instead.version
            if found.state != REMOVED:
                state = RETIRED if on else KEPT
                pinned = found.pinned and not on
                table.change(tx.connection, found.digest, state=state, replaced_by=by, pinned=pinned)
            elif on:
                table.change(tx.connection, found.digest, replaced_by=by)
            return found.digest

        return self._view_of(await self._change("retire_image", work))

    async def begin_removal(self, image: str) -> ImageView:
        def work(tx: Transaction) -> str:
            rows = table.read(tx.connection)
            found = _named(rows, image)
            if found.removing_at is None:
                _check_unused(found, rows, tx)
                table.change(tx.connection, found.digest, removing_at=self._clock())
            return found.digest

        return self._view_of(await self._change("begin_image_removal", work))

    async def end_removal(self, image: str, *, gone: bool) -> ImageView:
        def work(tx: Transaction) -> str:
            found = _named(table.read(tx.connection), image)
            if found.removing_at is None:
                if not gone or found.state == REMOVED:
                    return found.digest
                raise InUse(
                    "The removal of this image was not begun, so somebody may start it right now.",
                    "Begin it first; `allot images gc` does both.",
                )
            # one that a registry has can be brought back at a start, unless it is retired
            lost = gone and (found.source is None or found.state == RETIRED)
            state = REMOVED if lost else found.state
            table.change(tx.connection, found.digest, removing_at=None, state=state)
            return found.digest

        return self._view_of(await self._change("end_image_removal", work))

    async def _change(self, step: str, work: Callable[[Transaction], T]) -> T:
        def both(tx: Transaction) -> tuple[T, list[Image]]:
            return work(tx), table.read(tx.connection)

        result, rows = await self._store.write(step, both)
        self._images.replace(rows)
        self._changes.bump()
        return result

    def _view_of(self, digest: str) -> ImageView:
        found = self._images.get(digest)
        assert found is not None, "a row that was just written"
        return self._view(found)

    def _view(self, row: Image) -> ImageView:
        offered = self._images.offered(row.environment)
        state = "removing" if row.removing_at is not None else row.state
        if offered is not None and offered.digest == row.digest:
            state = "offered"
        return ImageView.model_validate(
            {
                **_columns(row, without=("description", "removing_at")),
                "version": row.version,
                "state": state,
                "used_by": sum(digest_of(lease) == row.digest for lease in self._book.all()),
            }
        )


def _check_unused(image: Image, rows: Sequence[Image], tx: Transaction) -> None:
    book = ImageBook()
    book.replace(rows)
    offered = book.offered(image.environment)
    if image.pinned or (offered is not None and offered.digest == image.digest):
        raise InUse(
            f"{image.environment} {image.version} is what is offered to people.",
            "Retire it, or pin another version, first.",
        )
    users = sum(digest_of(lease) == image.digest for lease in tx.unended())
    if users:
        raise InUse(
            f"{users} live session{'s' * (users != 1)} use {image.environment} {image.version}.",
            "Wait until they have ended.",
        )
    for base, name in table.saved_bases(tx.connection).items():
        if image.digest == base or image.version == base:
            raise InUse(
                f"The saved environment {name} is built upon {image.environment} {image.version}.",
                "Refuse it first, or keep the image.",
            )


def _named(rows: Sequence[Image], name: str) -> Image:
    """By digest, or by the beginning of one that only one has."""
    wanted = name.removeprefix("sha256:")
    found = [row for row in rows if row.digest.removeprefix("sha256:").startswith(wanted)]
    if len(found) != 1:
        what = "more than one image begins" if found else "no image begins"
        raise NoSuchImage(f"Here {what} with {wanted}.", "`allot images list` names them all.")
    return found[0]


def _columns(row: Image, *, without: Sequence[str] = ()) -> Mapping[str, Any]:
    return {name: getattr(row, name) for name in row.__dataclass_fields__ if name not in without}


def _write(tx: Transaction, row: Image) -> None:
    table.change(tx.connection, row.digest, **_columns(row, without=("digest",)))
