"""What people see of budgets, and what operators and owners do to them."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import TypeVar

from allotment_spawner.core.errors import BadOptions, NameTaken, NoSuchBudget, NotAllowed, WrongState
from allotment_spawner.money_wire import BudgetHistory, BudgetView

from allotment_hub.accounting.budgeting import period_at
from allotment_hub.broker.services.budget_book import EVERYBODY, BudgetBook, standing_of
from allotment_hub.broker.services.budget_use import Whose
from allotment_hub.broker.services.budget_views import NewBudget, Reader, Setting, history_of, view_of
from allotment_hub.broker.services.payable import amount, units
from allotment_hub.broker.store.budgets import (
    Budget,
    Change,
    Kind,
    NameInUse,
    add_budget,
    add_changes,
    changes_of,
    find_budget,
    find_change,
    period_changes,
    set_budget,
)
from allotment_hub.broker.store.store import Store
from allotment_hub.broker.store.transaction import Transaction

__all__ = ["Budgets"]

_SHOWN = 200

T = TypeVar("T")
Written = tuple[Sequence[Budget], Sequence[Change]]


class Budgets:
    """Implements `BudgetsApi`. Memory is written after each commit; `changed` is called then."""

    def __init__(
        self,
        *,
        store: Store,
        book: BudgetBook,
        zone: str,
        currency: str,
        changed: Callable[[], None],
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._book = book
        self._zone = zone
        self._currency = currency
        self._changed = changed
        self._clock = clock

    async def listed(self, reader: Reader) -> list[BudgetView]:
        await self._book.settle()
        # of several that could be a person's own, those that are
        own = {row.id for row in self._book.of(("user", reader.person or ""))}
        found = [row for row in self._book.all() if reader.everything or self._concerns(row, reader, own)]
        await self._book.read(_whose(row, reader) for row in found)
        return [self._view(row, reader) for row in found]

    async def one(self, reader: Reader, budget_id: str) -> BudgetHistory:
        await self._book.settle()

        def work(tx: Transaction) -> tuple[Budget | None, list[Change]]:
            row = find_budget(tx.connection, budget_id)
            return row, changes_of(tx.connection, budget_id, _SHOWN)

        row, changes = await self._store.read(work)
        if row is None or not self._may_see(row, reader):
            raise _no_such_budget()
        standing = await self._book.standing_at_length(row, _whose(row, reader), changes)
        return history_of(view_of(row, standing, reader), changes, reader)

    async def make(self, by: str, wanted: NewBudget) -> BudgetView:
        wanted.check_days(wanted.period)
        told = wanted.model_dump(exclude={"reason"})
        row = Budget(id=secrets.token_hex(8), made_by=by, made_at=self._clock(), **told)
        first = self._change(row, "set", row.amount, by, wanted.reason, in_period=False)

        def work(tx: Transaction) -> Written:
            try:
                add_budget(tx.connection, row)
            except NameInUse:
                raise NameTaken(
                    f"There is an open budget of this period and unit for {wanted.scope} {wanted.name}.",
                    "Change that one, or close it first.",
                ) from None
            add_changes(tx.connection, [first])
            return [row], [first]

        await self._write(work)
        return await self._after(row, by)

    async def set(self, by: str, budget_id: str, wanted: Setting) -> BudgetView:
        def work(tx: Transaction) -> Written:
            old = _open(tx, budget_id)
            new = replace(old, **wanted.model_dump(exclude={"reason"}))
            wanted.check_days(old.period)
            if new == old:
                return [old], []
            told = ". ".join(part for part in (_difference(old, new), wanted.reason) if part)
            change = self._change(new, "set", new.amount, by, told, in_period=False)
            set_budget(tx.connection, new)
            add_changes(tx.connection, [change])
            return [new], [change]

        rows, _ = await self._write(work)
        return await self._after(rows[0], by)

    async def close(self, by: str, budget_id: str, reason: str) -> None:
        def work(tx: Transaction) -> Written:
            row = find_budget(tx.connection, budget_id)
            if row is None:
                raise _no_such_budget()
            if row.closed_at is not None:
                return [], []
            closed = replace(row, closed_at=self._clock())
            change = self._change(row, "close", Decimal(0), by, reason, in_period=False)
            set_budget(tx.connection, closed)
            add_changes(tx.connection, [change])
            return [closed], [change]

        await self._write(work)

    async def change(
        self, by: str, budget_id: str, more: Decimal, reason: str, key: str | None
    ) -> BudgetView:
        """Add to the current period, or take from it; what each period has may not go below 0."""

        def work(tx: Transaction) -> Written:
            row = _open(tx, budget_id)
            made = self._change(row, "change", more, by, reason, key=key)
            if _again(tx, made):
                return [row], []
            if self._limit(tx, row) + more < 0:
                raise WrongState(
                    f"This budget has {amount(self._limit(tx, row))} {self._units(row)} in this period.",
                    "Take at most that much away.",
                )
            add_changes(tx.connection, [made])
            return [row], [made]

        rows, _ = await self._write(work)
        return await self._after(rows[0], by)

    async def transfer(
        self, reader: Reader, source_id: str, target_id: str, more: Decimal, reason: str, key: str | None
    ) -> BudgetView:
        """By an operator or the owner of the source, at most what is left of it: both or neither."""
        by = reader.name
        source = self._book.get(source_id)
        if source is None or not self._may_see(source, reader):
            raise _no_such_budget()
        if not reader.operator and source.owner != reader.person:
            raise NotAllowed(
                "Only operators and the budget's named owner may transfer from it.", "Ask one of them."
            )
        await self._book.read([_whose(source, reader)])
        used = self._book.standing(source, _whose(source, reader)).used

        def work(tx: Transaction) -> Written:
            row, other = _open(tx, source_id), _open(tx, target_id)
            out = self._change(row, "transfer", -more, by, reason, other=other.id, key=key)
            # of the first one: no other transfer with this key has the same id
            into_key = None if key is None else f"into:{out.id}"
            into = self._change(other, "transfer", more, by, reason, other=row.id, key=into_key)
            if _again(tx, out):
                return [row, other], []
            self._check_transfer(row, other, more, self._limit(tx, row) - used)
            add_changes(tx.connection, [out, into])
            return [row, other], [out, into]

        rows, _ = await self._write(work)
        return await self._after(rows[0], by, reader)

    def _check_transfer(self, row: Budget, other: Budget, more: Decimal, left: Decimal) -> None:
        if row.id == other.id or row.unit != other.unit:
            raise BadOptions(
                "A transfer goes between two budgets of one unit.", "Name another budget: allot budget list."
            )
        if EVERYBODY in (row.name, other.name) and "user" in (row.scope, other.scope):
            for one in (row, other):
                if (one.scope, one.name) == ("user", EVERYBODY):
                    raise BadOptions(
                        "This budget is each person's own, so there is nothing to transfer.",
                        "Make the person a budget by name first.",
                    )
        if more > left:
            words = self._units(row)
            raise WrongState(
                f"Only {amount(max(left, Decimal(0)))} {words} are left of this budget.",
                "Transfer at most that much.",
            )

    async def _write(self, work: Callable[[Transaction], Written]) -> Written:
        answered = False
        try:
            rows, changes = await self._store.write("budget", work)
            answered = True
        except (BadOptions, NameTaken, NoSuchBudget, NotAllowed, WrongState):
            answered = True
            raise
        finally:
            self._book.unsure = self._book.unsure or not answered
        self._book.put(rows, changes)
        self._changed()
        return rows, changes

    async def _after(self, row: Budget, by: str, reader: Reader | None = None) -> BudgetView:
        who = reader or Reader(name=by, person=by, operator=True)
        await self._book.read([_whose(row, who)])
        return self._view(row, who)

    def _change(
        self,
        row: Budget,
        kind: Kind,
        more: Decimal,
        by: str,
        reason: str,
        *,
        in_period: bool = True,
        other: str | None = None,
        key: str | None = None,
    ) -> Change:
        """With a `key` the same one gets the same id, so that a repeated call is done once."""
        now = self._clock()
        since = period_at(row.terms, now, self._zone)[0] if in_period else None
        made_of = f"{by}\n{kind}\n{row.id}\n{key}".encode()
        return Change(
            id=secrets.token_hex(16) if key is None else hashlib.sha256(made_of).hexdigest(),
            budget=row.id,
            period_from=since,
            kind=kind,
            amount=more,
            other=other,
            reason=reason,
            made_by=by,
            made_at=now,
        )

    def _limit(self, tx: Transaction, row: Budget) -> Decimal:
        """What the current period has, as the database says."""
        changes = period_changes(tx.connection, [row.id])
        return standing_of(row, changes, (Decimal(0), Decimal(0)), self._clock(), self._zone).limit

    def _units(self, row: Budget) -> str:
        return units(row.unit, self._currency)

    def _concerns(self, row: Budget, reader: Reader, own: Container[str]) -> bool:
        if row.owner is not None and row.owner == reader.person:
            return True
        return row.name in reader.groups if row.scope == "group" else row.id in own

    def _may_see(self, row: Budget, reader: Reader) -> bool:
        if reader.operator or (row.owner is not None and row.owner == reader.person):
            return True
        if row.scope == "group":
            return row.name in reader.groups
        return row.name in (reader.person, EVERYBODY) and reader.person is not None

    def _view(self, row: Budget, reader: Reader) -> BudgetView:
        return view_of(row, self._book.standing(row, _whose(row, reader)), reader)


def _whose(row: Budget, reader: Reader) -> Whose:
    """Everybody's own is shown as the reader's."""
    return (row.scope, (reader.person or "") if (row.scope, row.name) == ("user", EVERYBODY) else row.name)


def _open(tx: Transaction, budget_id: str) -> Budget:
    row = find_budget(tx.connection, budget_id)
    if row is None or row.closed_at is not None:
        raise _no_such_budget()
    return row


def _again(tx: Transaction, made: Change) -> bool:
    """Whether this was done already, under the same key. `BadOptions` when it was something else."""
    known = find_change(tx.connection, made.id)
    if known is None:
        return False
    if (known.amount, known.reason, known.other) != (made.amount, made.reason, made.other):
        raise BadOptions("This Idempotency-Key was used for another request.", "Use a new key.")
    return True


def _difference(old: Budget, new: Budget) -> str:
    """What else changed than the amount, for who reads the history."""
    parts: list[str] = []
    if old.hard != new.hard:
        parts.append("hard" if new.hard else "soft")
    parts += _words("owner", old.owner, new.owner)
    parts += _words("note", old.note, new.note)
    parts += _words("starts on", old.starts_on, new.starts_on)
    parts += _words("ends on", old.ends_on, new.ends_on)
    return "; ".join(parts)


def _words(what: str, old: object, new: object) -> Iterable[str]:
    return () if old == new else (f"{what}: {'none' if new in (None, '') else new}",)


def _no_such_budget() -> NoSuchBudget:
    return NoSuchBudget(
        "There is no such open budget, or it is not yours to see.", "See yours: allot budget list."
    )
