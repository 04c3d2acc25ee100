"""`allot budget list|show|set|close|add|transfer`: limits of money and GPU-hours, and what is left."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal
from urllib.parse import urlencode
from uuid import uuid4

import typer
from rich.table import Table

from allotment.budgets import Budget, BudgetHistory
from allotment.client import Client
from allotment.console import AsJson, DataDir, broker, exact, print_json, screen, since, told
from allotment.errors import WrongUse
from allotment.tables import whole_column

__all__ = ["budget_table", "register"]

Which = Annotated[
    str, typer.Argument(help="Its id, or whose it is: group:NAME, user:NAME, everybody.", metavar="BUDGET")
]
Whose = Annotated[str, typer.Argument(help="group:NAME, user:NAME or everybody.", metavar="WHOSE")]
Amount = Annotated[str, typer.Argument(help="In the site's currency, or in GPU-hours.", metavar="AMOUNT")]
Because = Annotated[str, typer.Option("--because", help="Why; kept for good.", show_default=False)]
Period = Literal["week", "month", "term", "total"]
Unit = Literal["money", "gpu-hours"]
_ONE = "group:NAME, user:NAME or everybody"


def register(app: typer.Typer) -> None:
    """Add the group `budget` to `allot`."""
    group = typer.Typer(help="Budgets of people and groups.", no_args_is_help=True)
    group.command("list")(list_budgets)
    group.command("set")(set_budget)
    for command in (show, close, add, transfer):
        group.command()(command)
    app.add_typer(group, name="budget")


def list_budgets(
    user: Annotated[
        str | None, typer.Option(help="Operators: what counts for this person.", show_default=False)
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Your own budget, those of your groups, and those that you own; all for operators."""
    with broker(data_dir) as client:
        found = client.budgets(user=user)
    if as_json:
        print_json(found)
    elif found:
        screen().print(budget_table(found))
    else:
        screen().print("No budgets: nothing limits what is spent.")


def show(which: Which, as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """One budget with what was done to it."""
    with broker(data_dir) as client:
        found = client.budget(_id_of(client, which))
    if as_json:
        print_json(found)
        return
    screen().print(budget_table([found]))
    if found.note:
        screen().print(found.note, soft_wrap=True)
    screen().print(_history(found))


def set_budget(
    whose: Whose,
    amount: Amount,
    period: Annotated[Period, typer.Option(help="For how long the amount is.")] = "month",
    unit: Annotated[Unit, typer.Option(help="What it limits.")] = "money",
    soft: Annotated[bool, typer.Option("--soft", help="Only warn; refuse and stop nothing.")] = False,
    starts: Annotated[
        str | None, typer.Option("--from", help="First day of a term, or of a total: 2026-10-01.")
    ] = None,
    ends: Annotated[str | None, typer.Option("--to", help="Last day of a term.")] = None,
    owner: Annotated[
        str | None, typer.Option(help="Who may look into it and transfer from it.", show_default=False)
    ] = None,
    note: Annotated[str, typer.Option(help="One line about it.")] = "",
    because: Annotated[str, typer.Option("--because", help="Why; kept for good.")] = "",
    data_dir: DataDir = None,
) -> None:
    """Operators: make a budget, or set the one of this unit and period anew."""
    with told():
        scope, name = _scope_of(whose)
        values: dict[str, object] = {
            "amount": str(_decimal(amount)), "hard": not soft, "owner": owner, "note": note,
            "starts_on": starts, "ends_on": ends, "reason": because,
        }  # fmt: skip
    sort = {"scope": scope, "name": name, "unit": unit.replace("-", "_"), "period": period}
    with broker(data_dir) as client:
        known = [one for one in client.budgets() if sort.items() <= one.model_dump().items()]
        if known:
            client.send("PUT", f"budgets/{known[0].id}", values)
        else:
            client.send("POST", "budgets", values | sort)
    screen().print(f"The budget of {whose} is {'changed' if known else 'made'}.", soft_wrap=True)


def close(which: Which, because: Because, data_dir: DataDir = None) -> None:
    """Operators: nothing counts against it any more; its history stays."""
    with broker(data_dir) as client:
        client.send("DELETE", f"budgets/{_id_of(client, which)}?{urlencode({'reason': because})}")
    screen().print("The budget is closed.")


def add(
    which: Which,
    amount: Amount,
    because: Because,
    take: Annotated[bool, typer.Option("--take", help="Take it away instead.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Operators: add to what the current period has."""
    with told():
        more = _decimal(amount)
    with broker(data_dir) as client:
        body: dict[str, object] = {"amount": str(-more if take else more), "reason": because}
        budget = _id_of(client, which)
        answer = client.send("POST", f"budgets/{budget}/changes", body, key=uuid4().hex)
    _say_left(answer)


def transfer(
    source: Annotated[str, typer.Argument(help="Where it comes from.", metavar="FROM")],
    target: Annotated[str, typer.Argument(help="Where it goes to.", metavar="TO")],
    amount: Amount,
    because: Because,
    data_dir: DataDir = None,
) -> None:
    """Operators, and the owner of FROM: move what is left of it to another budget, for this period."""
    with told():
        more = _decimal(amount)
    with broker(data_dir) as client:
        body: dict[str, object] = {
            "to": _id_of(client, target), "amount": str(more), "reason": because,
        }  # fmt: skip
        budget = _id_of(client, source)
        answer = client.send("POST", f"budgets/{budget}/transfers", body, key=uuid4().hex)
    _say_left(answer)


def _say_left(answer: dict[str, Any]) -> None:
    found = Budget.model_validate(answer)
    screen().print(f"{exact(found.left)} {found.unit_words} are left of it.".replace("  ", " "))


def _scope_of(whose: str) -> tuple[str, str]:
    """Raises `WrongUse`."""
    if whose == "everybody":
        return "user", "*"
    scope, colon, name = whose.partition(":")
    if not colon or not name or scope not in ("user", "group"):
        raise WrongUse(f"{whose!r} is nobody's budget.", f"Write {_ONE}.")
    return scope, name


def _id_of(client: Client, which: str) -> str:
    """Of one that is named by whose it is; raises `WrongUse` where that is not clear."""
    if which != "everybody" and ":" not in which:
        if not which or which.strip("0123456789abcdef"):
            raise WrongUse(f"{which!r} is no budget.", f"Give its id, or {_ONE}.")
        return which
    scope, name = _scope_of(which)
    found = [one for one in client.budgets() if (one.scope, one.name) == (scope, name)]
    if len(found) == 1:
        return found[0].id
    if not found:
        raise WrongUse(f"There is no budget of {which} that you may see.", "See them: allot budget list.")
    ids = ", ".join(f"{one.id} ({one.period}, {one.unit})" for one in found)
    raise WrongUse(f"There are several of {which}.", f"Give the id: {ids}.")


def _decimal(text: str) -> Decimal:
    try:
        found = Decimal(text)
    except InvalidOperation:
        found = Decimal("NaN")
    if not found.is_finite() or found < 0:
        raise WrongUse(f"{text!r} is no amount.", "Write it like 12.50.")
    return found


def budget_table(found: list[Budget] | list[BudgetHistory]) -> Table:
    """A row a budget; neither its id nor a number is ever cut or broken."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    whole_column(table, "Budget", [one.id for one in found])
    table.add_column("Whose", overflow="fold")
    whole_column(table, "Left", [exact(one.left) for one in found], right=True)
    whole_column(table, "Used", [exact(one.used) for one in found], right=True)
    table.add_column("Of", overflow="fold")
    for one in found:
        table.add_row(one.id, one.whose, exact(one.left), exact(one.used), _terms(one))
    return table


def _terms(one: Budget) -> str:
    """ "500.00 GPU-hours by the month with 5.00 added; hard, to 30 Nov 23:00 UTC; owner ada"."""
    period = {"term": "for a term", "total": "in all"}.get(one.period, f"by the {one.period}")
    change = "added" if one.changes > 0 else "taken away"
    more = f" with {exact(abs(one.changes))} {change}" if one.changes else ""
    kind = "closed" if one.closed_at else "hard" if one.hard else "soft"
    until = f", to {since(one.until)}" if one.until else ""
    owner = f"; owner {one.owner}" if one.owner else ""
    return f"{_amount(one.amount, one)} {period}{more}; {kind}{until}{owner}"


def _amount(value: Decimal, budget: Budget) -> str:
    return f"{exact(value)} {budget.unit_words}".strip()


def _history(found: BudgetHistory) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("When", "What", "Amount", "By", "Why"):
        table.add_column(name, overflow="fold")
    for one in found.history:
        other = f" {'from' if one.amount > 0 else 'to'} {one.other}" if one.other else ""
        table.add_row(
            since(one.made_at), one.kind + other, _amount(one.amount, found), one.made_by, one.reason
        )
    return table
