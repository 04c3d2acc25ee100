"""`allot people offboard`: end an account, and keep, hand over or erase the home."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer
from allotment.console import DataDir
from allotment_spawner.core.errors import Refusal
from allotment_spawner.engines.helpers import Helpers
from allotment_spawner.launch.names import LABEL_INSTALLATION, LABEL_USER
from docker.errors import DockerException
from requests.exceptions import RequestException

from allotment_hub.commands.installation import accounts_of, paths_of, polite, runtime_of, site_of
from allotment_hub.host.accounts import Accounts
from allotment_hub.host.docker_client import docker_client
from allotment_hub.host.errors import HostError
from allotment_hub.host.files import private_folder
from allotment_hub.host.lock import Lock
from allotment_hub.host.probes import request
from allotment_hub.paths import Paths
from allotment_hub.people.journal import Journal, Leaving
from allotment_hub.people.offboard import Homes, Offboarding
from allotment_hub.runtime import Runtime
from allotment_hub.site import Site

__all__ = ["offboard"]

_MIB = 2**20
_TELL_EVERY_S = 5.0


def offboard(
    name: Annotated[str, typer.Argument(help="Who leaves.")],
    archive: Annotated[
        bool, typer.Option("--archive", help="Pack the home into a file, then remove it.")
    ] = False,
    hand_over: Annotated[
        str | None, typer.Option("--hand-over", help="Give a copy to this person, then remove it.")
    ] = None,
    erase: Annotated[bool, typer.Option("--erase", help="Remove the home and keep nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    data_dir: DataDir = None,
) -> None:
    """End an account and its sessions, and see to the home. Run it again if it was cut short.

    Without an option the home stays, and is theirs again if they are added again.
    """
    with polite():
        paths = paths_of(data_dir)
        runtime, site = runtime_of(paths), site_of(paths)
        if erase and (archive or hand_over):
            raise HostError("--erase keeps nothing; leave it away with --archive or --hand-over.")
        private_folder(paths.offboard)
        lock = Lock(paths.offboard / ".lock")
        if not lock.take():
            raise HostError("Another `allot people offboard` is at work; wait until it is done.")
        try:
            _offboard(paths, site, runtime, name, (archive, hand_over, erase), yes=yes)
        except Refusal as refusal:
            raise HostError(f"{refusal.sentence} {refusal.next_step}") from None
        finally:
            lock.release()


def _offboard(
    paths: Paths, site: Site, runtime: Runtime, name: str, asked: tuple[bool, str | None, bool], *, yes: bool
) -> None:
    journal = Journal(folder=paths.offboard, user=name)
    accounts = accounts_of(paths)
    leaving = _plan(journal, accounts, name, asked)
    if leaving.ends_home and runtime.engine != "docker":
        raise HostError(
            f"Homes of the local engine are plain folders of your own account: {paths.homes}. Leave the "
            "option away, and see to the folder yourself."
        )
    offboarding = _offboarding(paths, site, runtime, accounts, journal)
    offboarding.check(leaving)
    typer.echo(_what(leaving))
    if not yes and not typer.confirm("Go on?"):
        raise HostError("Nothing was done.")
    offboarding.run(leaving)
    typer.echo(f"{name} has left.")


def _plan(journal: Journal, accounts: Accounts, name: str, asked: tuple[bool, str | None, bool]) -> Leaving:
    archive, hand_over, erase = asked
    before = journal.load()
    if before is not None:
        if any(asked) and asked != (before.archive, before.hand_over, before.erase):
            raise HostError(
                f"An earlier run for {name} is not finished and did something else; run it again without "
                f"options to finish it, or remove {journal.path}."
            )
        return before
    if name == "admin":
        raise HostError("admin stays: the installation itself works in its name.")
    if not accounts.exists(name):
        raise HostError(f"There is no account {name}; `allot people list` shows all.")
    if hand_over is not None and (hand_over == name or not accounts.exists(hand_over)):
        raise HostError(f"There is no other account {hand_over} that could get the files.")
    began = datetime.now(UTC).isoformat()
    return Leaving(user=name, archive=archive, hand_over=hand_over, erase=erase, began_at=began)


def _what(leaving: Leaving) -> str:
    if not leaving.ends_home:
        home = "The home stays as it is."
    elif leaving.erase:
        home = "The home is removed and NOTHING of it is kept."
    else:
        ways = ["packed into a file"] if leaving.archive else []
        ways += [f"copied into a folder in the home of {leaving.hand_over}"] if leaving.hand_over else []
        home = f"The home is {' and '.join(ways)}, then removed."
    begun = f" (begun {leaving.stamp}, done so far: {', '.join(leaving.done)})" if leaving.done else ""
    return f"The account of {leaving.user} and its sessions end. {home}{begun}"


def _offboarding(
    paths: Paths, site: Site, runtime: Runtime, accounts: Accounts, journal: Journal
) -> Offboarding:
    homes = site.homes
    return Offboarding(
        accounts=accounts,
        helpers=Helpers(installation=runtime.installation, base_url=site.docker.socket),
        homes=Homes(
            template=site.docker.home,
            installation=runtime.installation,
            rule=homes.rule,
            archive=Path(homes.archive) if homes.archive else paths.archive,
        ),
        journal=journal,
        sessions_of=_sessions(site, runtime),
        settle=_settle(paths, runtime),
        say=typer.echo,
        progress=_Progress(),
    )


def _sessions(site: Site, runtime: Runtime) -> Callable[[str], int]:
    def count(user: str) -> int:
        if runtime.engine != "docker":
            return 0
        labels = [f"{LABEL_INSTALLATION}={runtime.installation}", f"{LABEL_USER}={user}"]
        try:
            with docker_client(site.docker.socket) as client:
                return len(client.containers(all=True, filters={"label": labels}))
        except (DockerException, RequestException) as error:
            raise HostError(f"Docker does not answer ({error}); start it, and run this again.") from None

    return count


def _settle(paths: Paths, runtime: Runtime) -> Callable[[str, str], None]:
    def settle(user: str, state: str) -> None:
        token = (paths.secrets / "admin").read_text(encoding="utf-8").strip()
        base = f"http://{runtime.broker_host}:{runtime.broker_port}/services/allotment/api/v1"
        url = f"{base}/homes/{quote(user, safe='')}"
        reply = request(url, method="PUT", token=token, body={"state": state}, timeout_s=20)
        if not reply.ok:
            raise HostError(
                f"The broker did not note it ({reply.status or reply.problem}); run this again when it runs."
            )

    return settle


class _Progress:
    """A line now and then on a terminal, nothing elsewhere."""

    def __init__(self) -> None:
        self._told = time.monotonic()

    def __call__(self, done_bytes: int) -> None:
        now = time.monotonic()
        if sys.stderr.isatty() and now - self._told > _TELL_EVERY_S:
            self._told = now
            typer.echo(f"  {done_bytes // _MIB} MiB read", err=True)
