"""`allot people`: local accounts, through the running hub; passwords are made here and shown once."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated

import typer
from allotment.console import AsJson, DataDir, print_json, screen
from rich.table import Table

from allotment_hub.commands.installation import accounts_of, paths_of, polite, runtime_of, site_of
from allotment_hub.commands.offboard import offboard
from allotment_hub.host.accounts import Accounts
from allotment_hub.host.connection import Connection, make_password
from allotment_hub.host.errors import HostError
from allotment_hub.names import USER_NAME
from allotment_hub.paths import Paths
from allotment_hub.people.journal import Journal

__all__ = ["register"]

Names = Annotated[list[str], typer.Argument(help="Sign-in names.")]
_group = typer.Typer(help="Local accounts: add, list, remove, offboard.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    _group.command()(offboard)
    app.add_typer(_group, name="people")


@_group.command()
def add(
    names: Names,
    operator: Annotated[bool, typer.Option("--operator", help="They may see and end all sessions.")] = False,
    new_password: Annotated[
        bool, typer.Option("--new-password", help="Also for accounts that exist: give them a new one.")
    ] = False,
    data_dir: DataDir = None,
) -> None:
    """Make accounts with random passwords, shown once."""
    with polite():
        paths = paths_of(data_dir)
        accounts = accounts_of(paths)
        for name in names:
            if not re.fullmatch(USER_NAME, name):
                raise HostError(
                    f"{name!r} cannot be a name: 2 to 32 of a-z, 0-9, '.', '_' and '-', a letter first."
                )
        taken = [name for name in names if not new_password and accounts.exists(name)]
        if taken:
            exist = "exists" if len(taken) == 1 else "exist"
            raise HostError(f"{', '.join(taken)} {exist} already; use --new-password for a new password.")
        for name in names:
            _check_home_is_free(paths, accounts, name)
        site, runtime = site_of(paths), runtime_of(paths)
        for name in dict.fromkeys(names):
            password = make_password()
            accounts.put(name, password)
            _keep(paths, name, password)
            if operator:
                accounts.make_operator(name, site.sign_in.operators_group)
            typer.echo(f"{name}  {password}")
        open_to = site.local.open_accounts
        if runtime.engine == "local" and not runtime.trust_users and not set(names) <= set(open_to):
            typer.echo(
                f"They can sign in, but the local engine starts sessions for {', '.join(open_to)} only: "
                "use Docker, or ./deploy/down --keep-sessions && ./deploy/up --trust-users.",
                err=True,
            )


def _check_home_is_free(paths: Paths, accounts: Accounts, name: str) -> None:
    left = Journal(folder=paths.offboard, user=name).load()
    if left is not None and left.ends_home and not accounts.exists(name):
        raise HostError(
            f"The home of an earlier {name} is not seen to yet, and would be the new one's. First finish: "
            f"allot people offboard {name}"
        )


def _keep(paths: Paths, name: str, password: str) -> None:
    """connection.json names the passwords of the two accounts that `up` made."""
    connection = Connection.load(paths.connection)
    if connection is not None and name == connection.user:
        replace(connection, user_password=password).save(paths.connection)
    elif connection is not None and name == connection.admin_user:
        replace(connection, admin_password=password).save(paths.connection)


@_group.command("list")
def list_people(as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Everybody who may sign in."""
    with polite():
        paths = paths_of(data_dir)
        people = accounts_of(paths).people()
        group = site_of(paths).sign_in.operators_group
    operators = {person.name for person in people if person.admin or group in person.groups}
    if as_json:
        listed: list[dict[str, object]] = [
            {
                "name": person.name,
                "operator": person.name in operators,
                "groups": list(person.groups),
                "sessions": person.servers,
            }
            for person in people
        ]
        print_json({"people": listed})
        return
    table = Table("Name", "Operator", "Groups", "Sessions", box=None, pad_edge=False, header_style="bold")
    for person in people:
        operator = "yes" if person.name in operators else ""
        table.add_row(person.name, operator, ", ".join(person.groups), str(person.servers or ""))
    screen().print(table)


@_group.command()
def remove(
    names: Names,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    data_dir: DataDir = None,
) -> None:
    """End accounts and their sessions. Homes stay, and are theirs again if they are added again."""
    with polite():
        accounts = accounts_of(paths_of(data_dir))
        unknown = [name for name in names if not accounts.exists(name)]
        if unknown:
            raise HostError(f"There is no account {', '.join(unknown)}; `allot people list` shows all.")
        if "admin" in names:
            raise HostError("admin stays: the installation itself works in its name.")
        if not yes and not typer.confirm(f"Remove {', '.join(names)} and end their sessions?"):
            raise HostError("Nobody was removed.")
        for name in dict.fromkeys(names):
            accounts.remove(name)
            typer.echo(f"{name} removed")
