"""`allot status`: the services, the engine, the GPUs and who is at work, in one look."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from rich.console import Console

from allotment.client import Client
from allotment.commands.leases import lease_table
from allotment.console import AsJson, DataDir, broker, print_json, screen
from allotment.errors import AllotmentError, Refused
from allotment.fleet import Fleet, Part
from allotment.models import Lease

__all__ = ["status"]


_WORDS = {True: ("runs", "green"), False: ("does not work", "red"), None: ("unknown", "dim")}


@dataclass(frozen=True, slots=True)
class Service:
    """One process of the installation: `ok` is None where this account cannot tell."""

    name: str
    ok: bool | None
    note: str


def status(as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Services, engine, GPUs and sessions. Exit 1 when something does not work."""
    with broker(data_dir) as client:
        services, fleet, sessions = _look(client)
        url = client.settings.hub_url or client.settings.url
    if as_json:
        print_json(_document(url, services, fleet, sessions))
    else:
        _print(screen(), url, services, fleet, sessions)
    if any(service.ok is False for service in services):
        raise SystemExit(1)


def _look(client: Client) -> tuple[list[Service], Fleet | None, list[Lease]]:
    hub = _hub(client)
    try:
        health = client.health()
    except AllotmentError as error:
        if not hub.ok:
            raise  # nothing answers at all: one sentence says more than a list of failures
        return [hub, Service("broker", False, error.sentence)], None, []
    service = Service("broker", health.ready, f"version {health.version}" if health.ready else "starting")
    if not health.ready:
        return [hub, service], None, []
    fleet = _fleet(client)
    return [hub, service, *_machine(fleet)], fleet, client.leases(live=True)


def _hub(client: Client) -> Service:
    try:
        return Service("hub", True, f"JupyterHub {client.hub_version()}")
    except AllotmentError as error:
        return Service("hub", False, error.sentence)


def _fleet(client: Client) -> Fleet | None:
    try:
        return client.fleet()
    except Refused as refused:
        if refused.code != "not_allowed":
            raise
        return None


def _machine(fleet: Fleet | None) -> list[Service]:
    if fleet is None:
        return [Service(name, None, "only operators see it") for name in ("agent", "engine")]
    engine = fleet.engine.name or ""
    return [_part("agent", fleet.agent, _hardware(fleet)), _part("engine", fleet.engine, engine)]


def _part(name: str, part: Part, note: str) -> Service:
    return Service(name, part.ok, note if part.ok else part.problem or "does not answer")


def _hardware(fleet: Fleet) -> str:
    count = f"{len(fleet.gpus)} GPU{'' if len(fleet.gpus) == 1 else 's'}"
    if fleet.simulated:
        return f"{count}, simulated (no real card is behind them)"
    return f"{count}, driver {fleet.driver_version}" if fleet.driver_version else count


def _print(
    console: Console, url: str, services: list[Service], fleet: Fleet | None, sessions: list[Lease]
) -> None:
    console.print(f"Allotment at {url}", markup=False, soft_wrap=True)
    for service in services:
        word, style = _WORDS[service.ok]
        console.print(f"  {service.name:7} [{style}]{word}[/]", end="  ")
        console.print(service.note, markup=False, soft_wrap=True)
    for gpu in fleet.gpus if fleet else ():
        if gpu.problem:
            console.print(f"  GPU {gpu.index} is unusable: {gpu.problem}", style="red", markup=False)
    count = "1 live session" if len(sessions) == 1 else f"{len(sessions)} live sessions"
    console.print(f"{count}{':' if sessions else '.'}")
    if sessions:
        console.print(lease_table(sessions))


def _document(
    url: str, services: list[Service], fleet: Fleet | None, sessions: list[Lease]
) -> dict[str, object]:
    return {
        "url": url,
        "services": [asdict(service) for service in services],
        "simulated": fleet.simulated if fleet else None,
        "sessions": [lease.model_dump(mode="json", by_alias=True) for lease in sessions],
    }
