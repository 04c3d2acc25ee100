"""Saved environments: asked for by people, approved or refused by operators, then built and offered."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from allotment_spawner.core.errors import (
    EnvironmentUnavailable,
    LinksNotAllowed,
    NameTaken,
    TooManySaved,
    UnknownEnvironment,
    WrongState,
)

from allotment_hub.broker.services.admission import Admission
from allotment_hub.broker.services.environments import Environments
from allotment_hub.broker.services.saved_views import Approve, Package, Save, SavedView, normal
from allotment_hub.broker.store.saved import (
    APPROVED,
    ASKED,
    REFUSED,
    SavedRow,
    drop_saved,
    find_saved,
    list_saved,
    put_saved,
    waiting_of,
)
from allotment_hub.broker.store.store import Store
from allotment_hub.broker.store.transaction import Transaction

__all__ = ["Saved", "SavedApi"]

_MOST_WAITING = 20
_MOST_SHOWN = 1000
_SOMEBODY = "another person"
_OF_BUILDS = "-packages"
"""images/build names so what it builds an environment upon: minimal-packages is minimal's."""


class SavedApi(Protocol):
    """`who` is the caller; `operator` whether that is one. Unknown names, and those that the caller may
    not see, raise `UnknownEnvironment`."""

    async def save(self, who: str, name: str, body: Save) -> SavedView:
        """Ask for it, or change what was asked. Raises `NameTaken`, `WrongState` once it is approved,
        `TooManySaved`, and the refusals of the base."""

    async def listed(self, who: str, *, operator: bool) -> list[SavedView]:
        """The caller's own and the approved ones; all for operators."""

    async def one(self, who: str, name: str, *, operator: bool) -> SavedView: ...

    async def approve(self, who: str, name: str, body: Approve) -> SavedView:
        """Operators. Raises `WrongState` when it is another one than was looked at, `LinksNotAllowed`."""

    async def refuse(self, who: str, name: str, because: str) -> SavedView:
        """Operators; also takes an approval back. An image that was built stays: retire it."""

    async def drop(self, who: str, name: str, *, operator: bool) -> None:
        """Forget it; the owner only as long as it is not approved."""


class Saved:
    """Implements `SavedApi`."""

    def __init__(
        self,
        *,
        store: Store,
        admission: Admission,
        environments: Environments,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._admission = admission
        self._environments = environments
        self._clock = clock

    async def save(self, who: str, name: str, body: Save) -> SavedView:
        if not self._environments.on_images:
            raise EnvironmentUnavailable(
                "Sessions run here without images, so there is nothing that others could be given.",
                "Ask the operator for an installation with Docker.",
            )
        image = self._admission.check_environment(
            body.base, await self._admission.groups_of(who), body.base_version
        )
        assert image is not None, "sessions run from images here"
        if name.endswith(_OF_BUILDS):
            raise NameTaken(f"Images are built upon others called …{_OF_BUILDS}.", "Choose another name.")
        if self._environments.rule(name) is not None:
            raise NameTaken(f"There is an environment called {name} already.", "Choose another name.")
        wanted = SavedRow(
            name=name,
            title=body.title,
            owner=who,
            base=body.base,
            base_digest=image.digest,
            requirements=_requirements(body.packages),
            state=ASKED,
            note=None,
            asked_at=self._clock(),
        )
        return _view(await self._store.write("save_environment", lambda tx: _save(tx, wanted)), who, False)

    async def listed(self, who: str, *, operator: bool) -> list[SavedView]:
        rows = await self._store.read(lambda tx: list_saved(tx.connection, _MOST_SHOWN))
        return [_view(row, who, operator) for row in rows if _visible(row, who, operator)]

    async def one(self, who: str, name: str, *, operator: bool) -> SavedView:
        row = await self._store.read(lambda tx: _known(tx, name, who, operator=operator))
        return _view(row, who, operator)

    async def approve(self, who: str, name: str, body: Approve) -> SavedView:
        def work(tx: Transaction) -> SavedRow:
            row = _known(tx, name, who, operator=True)
            if row.checksum != body.checksum:
                raise WrongState(
                    f"{name} is not what you looked at: its owner has changed it since.", "Look at it again."
                )
            linked = [one["name"] for one in row.packages if one.get("link")]
            if linked and not body.allow_links:
                raise LinksNotAllowed(
                    f"These packages come from addresses and not from an index: {', '.join(linked[:10])}.",
                    "Look at their addresses; then approve with --allow-links, or refuse.",
                    packages=linked[:50],
                )
            return self._decide(tx, row, APPROVED, who, None)

        return _view(await self._store.write("approve_environment", work), who, True)

    async def refuse(self, who: str, name: str, because: str) -> SavedView:
        def work(tx: Transaction) -> SavedRow:
            return self._decide(tx, _known(tx, name, who, operator=True), REFUSED, who, because)

        return _view(await self._store.write("refuse_environment", work), who, True)

    def _decide(self, tx: Transaction, row: SavedRow, state: str, who: str, note: str | None) -> SavedRow:
        if row.state == state and row.note == note:
            return row
        row = replace(row, state=state, note=note, decided_at=self._clock(), decided_by=who)
        put_saved(tx.connection, row)
        return row

    async def drop(self, who: str, name: str, *, operator: bool) -> None:
        def work(tx: Transaction) -> None:
            row = _known(tx, name, who, operator=operator)
            if not operator and row.owner != who:
                raise _unknown(name)
            if not operator and row.state == APPROVED:
                raise _approved(name)
            drop_saved(tx.connection, name)

        await self._store.write("drop_environment", work)


def _save(tx: Transaction, wanted: SavedRow) -> SavedRow:
    old = find_saved(tx.connection, wanted.name)
    if old is not None and old.owner != wanted.owner:
        raise NameTaken(
            f"Somebody has saved an environment as {wanted.name} already.", "Choose another name."
        )
    if old is not None and old.state == APPROVED:
        raise _approved(wanted.name)
    if old is None and waiting_of(tx.connection, wanted.owner) >= _MOST_WAITING:
        raise TooManySaved(
            f"{_MOST_WAITING} environments that you saved wait for an operator already.",
            "Delete some, or ask an operator to look at them.",
        )
    upon = find_saved(tx.connection, wanted.base)
    if upon is not None and upon.state == APPROVED:
        # saved in a session of a saved one: both together, upon what that one stands on
        below = {normal(one["name"]): one for one in upon.packages}
        own = {normal(one["name"]): one for one in wanted.packages}
        both = sorted((below | own).items())
        wanted = replace(wanted, base=upon.base, requirements=json.dumps([one for _, one in both]))
    put_saved(tx.connection, wanted)
    return wanted


def _requirements(packages: tuple[Package, ...]) -> str:
    """The same packages give the same text, in whatever order they were sent."""
    ordered = sorted(packages, key=lambda one: normal(one.name))
    return json.dumps([one.model_dump(mode="json") for one in ordered])


def _known(tx: Transaction, name: str, who: str, *, operator: bool) -> SavedRow:
    row = find_saved(tx.connection, name)
    if row is None or not _visible(row, who, operator):
        raise _unknown(name)
    return row


def _visible(row: SavedRow, who: str, operator: bool) -> bool:
    return operator or row.owner == who or row.state == APPROVED


def _view(row: SavedRow, who: str, operator: bool) -> SavedView:
    near = operator or row.owner == who
    values = {name: getattr(row, name) for name in SavedRow.__slots__ if name != "requirements"}
    values |= {"packages": row.packages, "checksum": row.checksum}
    if not near:
        # an address may hold what lets its owner in there
        values |= {"owner": _SOMEBODY, "packages": [{**one, "link": None} for one in row.packages]}
    if not operator:
        values |= {"decided_by": None}
    return SavedView.model_validate(values)


def _unknown(name: str) -> UnknownEnvironment:
    return UnknownEnvironment(
        f"There is no saved environment {name}, or it is not yours.", "See them all: allot env saved."
    )


def _approved(name: str) -> WrongState:
    return WrongState(
        f"{name} is approved, so it stays as it is.", "Save under another name, or ask an operator."
    )
