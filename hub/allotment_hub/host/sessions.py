"""Sessions of this installation: how many run, and ending them all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from allotment_spawner.core.errors import EngineUnavailable
from allotment_spawner.engines.base import Engine
from allotment_spawner.engines.docker import DockerEngine
from allotment_spawner.engines.local import LocalEngine

from allotment_hub.config_loading import ConfigError, load_configuration
from allotment_hub.host.accounts import Accounts
from allotment_hub.host.errors import HostError
from allotment_hub.host.unix_account import ordinary
from allotment_hub.paths import Paths
from allotment_hub.runtime import Runtime
from allotment_hub.site import Site

__all__ = [
    "count_workloads",
    "end_workloads",
    "refuse_other_machine",
    "refuse_other_user",
    "site_or_defaults",
    "stop_through_hub",
]

LIMIT_S = 60.0


def stop_through_hub(paths: Paths, runtime: Runtime, say: Callable[[str], None]) -> None:
    """Ask the hub to end every session, so that books and routes are closed in order; wait for it."""
    token = (paths.secrets / "admin").read_text(encoding="utf-8").strip()
    accounts = Accounts(api_url=runtime.hub_api_url, token=token)
    try:
        for name, server in accounts.servers():
            say(f"Stopping the session of {name}{f' ({server})' if server else ''}")
            accounts.stop_server(name, server)
        limit = time.monotonic() + LIMIT_S
        while accounts.servers() and time.monotonic() < limit:
            time.sleep(0.2)
    except HostError as error:
        say(f"{error} Its sessions are ended directly.")


def site_or_defaults(paths: Paths) -> Site:
    """For stopping: a broken configuration must not keep anybody from that."""
    try:
        return load_configuration(site=paths.site, catalog=paths.catalog)[0]
    except ConfigError:
        return Site()


def count_workloads(site: Site, runtime: Runtime, user: str | None = None) -> int | None:
    """How many sessions the engine has; None when it does not answer. `user` as in host.json."""
    return asyncio.run(_count(_engine(site, runtime, user)))


def refuse_other_machine(site: Site, *, old: Runtime, new: Runtime, user: str | None = None) -> None:
    """Sessions of one engine or one set of GPUs would be strangers to another: `HostError` while any run."""
    if (old.engine, old.gpus) == (new.engine, new.gpus):
        return
    count = count_workloads(site, old, user)
    if count == 0:
        return
    changed = f"engine {new.engine}" if old.engine != new.engine else f"GPUs {new.gpus}"
    if count is None:
        raise HostError(
            f"Sessions may run on the engine {old.engine}, which does not answer; start it, "
            f"or end them for good with ./deploy/down --purge."
        )
    raise HostError(
        f"{count} session{'s' if count > 1 else ''} of the engine {old.engine} with GPUs {old.gpus} must end "
        f"before the {changed} can be used: run ./deploy/down first."
    )


def end_workloads(site: Site, runtime: Runtime, say: Callable[[str], None], user: str | None = None) -> None:
    """End what the engine still has; `HostError` when it does not answer."""
    try:
        ended = asyncio.run(_end(_engine(site, runtime, user), grace_s=site.policies.stop_grace_s))
    except EngineUnavailable as error:
        raise HostError(f"{error.sentence} {error.next_step}") from None
    if ended:
        say(f"Ended {ended} session{'s' if ended > 1 else ''}")


def refuse_other_user(old: Runtime | None, *, was: str | None, user: str | None) -> None:
    """Processes of one account would be strangers to services of another: `HostError` while any run."""
    if old is None or old.engine != "local" or ordinary(was) == ordinary(user):
        return
    count = count_workloads(Site(), old, was)
    if count:
        raise HostError(
            f"{count} session{'s' if count > 1 else ''} of the account {was or 'root'} must end before the "
            f"services can run as {user or 'root'}: run ./deploy/down first."
        )


def _engine(site: Site, runtime: Runtime, user: str | None) -> Engine:
    if runtime.engine == "docker":
        return DockerEngine(installation=runtime.installation, base_url=site.docker.socket)
    account = ordinary(user)
    return LocalEngine(installation=runtime.installation, uid=account.uid if account else None)


async def _count(engine: Engine) -> int | None:
    try:
        return len(await engine.observe())
    except EngineUnavailable:
        return None


async def _end(engine: Engine, *, grace_s: float) -> int:
    found = await engine.observe()
    for workload in found:
        await engine.stop(workload.engine_ref, grace_s=grace_s)
    return len(found)
