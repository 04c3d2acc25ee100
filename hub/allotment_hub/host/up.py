"""`./deploy/up`: checks, prepares, starts the supervisor, waits until a session could start, says where."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import FrameType

from allotment_hub.config_loading import ConfigError, load_configuration
from allotment_hub.host import messages
from allotment_hub.host.accounts import Accounts
from allotment_hub.host.backup import back_up, migrate_hub
from allotment_hub.host.checkout import CHECKOUT, code_stamp
from allotment_hub.host.checks import check_data_dir, check_tls
from allotment_hub.host.connection import Connection, make_password
from allotment_hub.host.control import running, start_supervisor, stop_services
from allotment_hub.host.errors import HostError
from allotment_hub.host.layout import lay_out, read_runtime
from allotment_hub.host.lock import Lock
from allotment_hub.host.options import UpOptions, parse_up
from allotment_hub.host.ownership import give_file
from allotment_hub.host.prepare import PREFIX, Plan, make_plan
from allotment_hub.host.sessions import (
    count_workloads,
    end_workloads,
    refuse_other_machine,
    refuse_other_user,
    site_or_defaults,
    stop_through_hub,
)
from allotment_hub.host.settings import HostSettings
from allotment_hub.host.specs import base_env
from allotment_hub.host.unix_account import ordinary, wanted_account
from allotment_hub.host.waiting import wait_for_services, wait_for_sessions
from allotment_hub.paths import Paths

__all__ = ["main"]

Say = Callable[[str], None]


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0, or 2 after one clear sentence."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # until it runs, each undoes what was begun
    try:
        return up(parse_up(sys.argv[1:] if argv is None else argv), env=os.environ, say=messages.say)
    except ConfigError as error:
        print("The configuration cannot be used:", *error.findings, sep="\n  ", file=sys.stderr)
    except HostError as error:
        print(f"up: {error}", file=sys.stderr)
    except OSError as error:
        print(
            f"up: {error.strerror or error}{f': {error.filename}' if error.filename else ''}", file=sys.stderr
        )
    except KeyboardInterrupt:
        print("up: interrupted; nothing was left running", file=sys.stderr)
    return 2


def up(options: UpOptions, *, env: Mapping[str, str], say: Say) -> int:
    paths = Paths(data=options.data_dir)
    user = _user(options, paths, env)
    account = ordinary(user)
    check_data_dir(paths, account)
    if options.tls_cert and options.tls_key:
        check_tls(options.tls_cert, options.tls_key)
    secrets = lay_out(paths, defaults=CHECKOUT / "deploy" / "config", account=account)
    lock = Lock(paths.runtime.parent / "up.lock")
    if not lock.take():
        raise HostError(f"Another ./deploy/up is at work in {paths.data}; wait for it.")
    first = Connection.load(paths.connection) is None
    try:
        if running(paths) and not _outdated(paths, say):
            return _already(paths, say)
        plan = _start(options, paths=paths, secrets=secrets, env=env, user=user, say=say)
        # before anything is told: who reads "Ctrl-C" may press it at once
        ending = None if options.detach else Ending()
    finally:
        lock.release()
    connection = Connection.load(paths.connection)
    if connection is not None:
        messages.finished(connection, plan, paths, first=first, detach=options.detach)
    return 0 if ending is None else _stay(paths, plan, ending, yes=options.yes, say=say)


def _user(options: UpOptions, paths: Paths, env: Mapping[str, str]) -> str | None:
    """Whom the services are to run as; refused while others of them run, or their sessions."""
    if not os.access(paths.data, os.R_OK | os.X_OK):
        return wanted_account(options.user, kept=None, env=env)  # a new one, or refused in a moment
    old = HostSettings.load(paths.data)
    was = old.user if old is not None else None
    user = wanted_account(options.user, kept=was, env=env)
    if running(paths) and (ordinary(was) != ordinary(user) or paths.data.stat().st_uid != os.geteuid()):
        raise HostError(
            f"Allotment runs in {paths.data} already, as another account; stop it first: ./deploy/down "
            "(whoever started it can)."
        )
    refuse_other_user(read_runtime(paths), was=was, user=user)
    return user


def _already(paths: Paths, say: Say) -> int:
    settings = HostSettings.load(paths.data)
    connection = Connection.load(paths.connection)
    where = connection.hub_url if connection else settings.local_url if settings else "its address"
    say(f"Allotment runs already: {where}")
    say(f"To change its options, stop it first: ./deploy/down --keep-sessions (data: {paths.data})")
    return 0


def _outdated(paths: Paths, say: Say) -> bool:
    """Whether what runs is another version of the code than this checkout's; if so it is stopped."""
    settings = HostSettings.load(paths.data)
    if settings is not None and settings.code == code_stamp():
        return False
    say("Updating: the services restart, sessions go on")
    stop_services(paths)
    return True


def _start(
    options: UpOptions,
    *,
    paths: Paths,
    secrets: Mapping[str, str],
    env: Mapping[str, str],
    user: str | None,
    say: Say,
) -> Plan:
    site, catalog = load_configuration(site=paths.site, catalog=paths.catalog)
    old = HostSettings.load(paths.data)
    plan = make_plan(options, paths=paths, site=site, catalog=catalog, user=user, say=say)
    for note in plan.notes:
        say(note)
    before = read_runtime(paths)
    if before is not None:
        refuse_other_machine(site, old=before, new=plan.runtime, user=user)
    plan.save(paths)
    if old is not None and old.code != plan.settings.code:
        folder = back_up(paths, old_code=old.code, now=datetime.now(UTC))
        if folder is not None:
            say(f"Databases backed up to {folder}")
            migrate_hub(paths, env=base_env(env), account=ordinary(user))
    say("Starting the services")
    try:
        start_supervisor(paths, dict(env))
        wait_for_services(paths, say)
        wait_for_sessions(plan.settings, token=secrets["admin"])
        _first_accounts(plan, paths=paths, token=secrets["admin"])
    except BaseException:
        stop_services(paths)
        raise
    return plan


def _first_accounts(plan: Plan, *, paths: Paths, token: str) -> None:
    """connection.json; the two accounts get passwords once, when there is no connection.json yet."""
    old = Connection.load(paths.connection)
    passwords = (old.admin_password, old.user_password) if old else (make_password(), make_password())
    connection = Connection(
        hub_url=plan.runtime.public_url,
        broker_url=plan.runtime.public_url + PREFIX,
        admin_user="admin",
        admin_password=passwords[0],
        user="demo",
        user_password=passwords[1],
        admin_token=token,
    )
    if old is None:
        accounts = Accounts(api_url=plan.runtime.hub_api_url, token=token)
        accounts.put(connection.admin_user, connection.admin_password)
        accounts.put(connection.user, connection.user_password)
    connection.save(paths.connection)
    account = ordinary(plan.settings.user)
    if account is not None:
        give_file(paths.connection, uid=account.uid, gid=account.gid)


class Ending:
    """From its making on, Ctrl-C and signals end the stay in the foreground instead of this process."""

    def __init__(self) -> None:
        self._came = threading.Event()
        self.asked = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def wait(self, limit_s: float) -> bool:
        return self._came.wait(limit_s)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.asked = self.asked or number == signal.SIGINT
        self._came.set()


def _stay(paths: Paths, plan: Plan, ending: Ending, *, yes: bool, say: Say) -> int:
    """In the foreground until Ctrl-C, a signal, or the supervisor's end (`down` in another terminal)."""
    while not ending.wait(1.0):
        if not running(paths):
            say("The services were stopped")
            return 0
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if ending.asked and sys.stdout.isatty():
        print(flush=True)  # the terminal wrote ^C
    _finish(paths, plan, ask=ending.asked and not yes, say=say)
    return 0


def _finish(paths: Paths, plan: Plan, *, ask: bool, say: Say) -> None:
    site = site_or_defaults(paths)
    count = count_workloads(site, plan.runtime, plan.settings.user)
    stop = (
        bool(count)
        and ask
        and sys.stdin.isatty()
        and messages.ask(f"{messages.run_now(count)}. End {'it' if count == 1 else 'them'}, too?")
    )
    if stop:
        stop_through_hub(paths, plan.runtime, say)
    say("Stopping the services")
    stop_services(paths)
    if stop:
        end_workloads(site, plan.runtime, say, plan.settings.user)
    elif count:
        say(f"{messages.go_on(count)}; ./deploy/up finds them again, ./deploy/down ends them")


if __name__ == "__main__":
    sys.exit(main())
