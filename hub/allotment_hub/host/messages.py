"""What `up` and `down` print and ask."""

from __future__ import annotations

import os
from contextlib import suppress

from allotment_hub.host.checkout import CHECKOUT
from allotment_hub.host.connection import Connection
from allotment_hub.host.options import default_data_dir
from allotment_hub.host.prepare import Plan
from allotment_hub.paths import Paths

__all__ = ["ask", "counted", "finished", "go_on", "run_now", "say"]


def say(text: str) -> None:
    """One line of progress, at once even into a pipe; where nobody reads any more, the work still goes on."""
    with suppress(OSError):
        print(f"· {text}", flush=True)


def counted(count: int | None) -> str:
    """E.g. "1 session", "3 sessions"."""
    return f"{count or 0} session{'' if count == 1 else 's'}"


def go_on(count: int) -> str:
    return f"{counted(count)} {'goes' if count == 1 else 'go'} on"


def run_now(count: int | None) -> str:
    return f"{counted(count)} {'runs' if count == 1 else 'run'}"


def ask(question: str) -> bool:
    """A yes or no; anything but y is no."""
    try:
        return input(f"{question} [y/N] ").strip().lower() in {"y", "yes"}
    except (EOFError, KeyboardInterrupt):
        print(flush=True)
        return False


def _here(command: str, paths: Paths) -> str:
    """The command for this installation, ready to be copied."""
    usual = default_data_dir(os.environ) == paths.data
    return command if usual else f"{command} --data-dir {paths.data}"


def finished(connection: Connection, plan: Plan, paths: Paths, *, first: bool, detach: bool) -> None:
    """Where it is, how to sign in, where data and logs lie, what to do next.

    Passwords are shown at the `first` start only: people change them.
    """
    simulated = plan.runtime.gpus.startswith("sim:")
    allot = os.path.relpath(CHECKOUT / ".venv" / "bin" / "allot")
    down, up = _here("./deploy/down", paths), _here("./deploy/up", paths)
    lines = [
        "",
        f"  Allotment is ready: {connection.hub_url}",
        "",
        *_accounts(connection, paths, first=first),
        f"  Data and logs       {paths.data}, {paths.logs}",
        f"  Command             {_here(f'{allot} status', paths)}",
    ]
    if simulated:
        lines += [
            "",
            f"  The GPUs are simulated: {plan.runtime.gpus[4:]}.",
            "  Real GPUs           install NVIDIA's driver, then (as root for MIG)",
            f"                      {down} && {up}",
        ]
    if plan.runtime.engine == "local":
        lines += [
            "  Docker              images/build minimal pytorch, then",
            f"                      {down} && {up} --engine docker",
        ]
    lines += ["", f"  Stop                {'' if detach else 'Ctrl-C, or '}{down}", ""]
    # a terminal that is closed in the middle of it sends its signal too, and only that ends the stay
    with suppress(OSError):
        print("\n".join(lines), flush=True)


def _accounts(connection: Connection, paths: Paths, *, first: bool) -> list[str]:
    if not first:
        return [
            f"  Sign in as          {connection.user}, or {connection.admin_user} as the operator",
            f"                      (first passwords: {paths.connection})",
        ]
    return [
        f"  Sign in as          {connection.user:<6} {connection.user_password}",
        f"  Operator            {connection.admin_user:<6} {connection.admin_password}",
        f"                      (also in {paths.connection})",
    ]
