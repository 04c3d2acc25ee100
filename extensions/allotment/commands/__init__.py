"""The base commands of `allot`; those that touch the machine come with the hub distribution."""

from __future__ import annotations

import typer

from allotment.commands import budget, env, metrics, usage
from allotment.commands.explain import explain
from allotment.commands.gpus import gpus
from allotment.commands.leases import leases
from allotment.commands.say import say
from allotment.commands.status import status
from allotment.commands.stop import stop
from allotment.commands.top import top
from allotment.commands.version import version

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the base commands to `app`."""
    for command in (status, gpus, leases, explain, say, stop, top, version):
        app.command()(command)
    env.register(app)
    metrics.register(app)
    usage.register(app)
    budget.register(app)
