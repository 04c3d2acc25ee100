"""`allot status`: the services, the engine, the GPUs and who is at work, in one look."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from rich.console import Console

from allotment.client import Client
from allotment.commands.leases import lease_table
from allotment.console import AsJson, DataDir, broker, print_json, screen
from allotment.errors import AllotmentError, Refused
from allotment.fleet import Disk, Fleet, Part
from allotment.models import Lease, Me

__all__ = ["status"]


_WORDS = {True: ("runs", "green"), False: ("does not work", "red"), None: ("unknown", "dim")}


@dataclass(frozen=True, slots=True)
class Service:
    """One process of the installation: `ok` is None where this account cannot tell."""

    name: str
    ok: bool | None
    note: str


@dataclass(frozen=True, slots=True)
class Look:
    """All that one call of `status` found out; None and empty where it could not."""

    services: list[Service]
    fleet: Fleet | None = None
    sessions: list[Lease] = field(default_factory=list)
    simulated: bool | None = None


def status(as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Services, engine, GPUs and sessions. Exit 1 when something does not work."""
    with broker(data_dir) as client:
        look = _look(client)
        url = client.settings.hub_url or client.settings.url
    if as_json:
        print_json(_document(url, look))
    else:
        _print(screen(), url, look)
    if any(service.ok is False for service in look.services):
        raise SystemExit(1)


def _look(client: Client) -> Look:
    hub = _hub(client)
    try:
        health = client.health()
    except AllotmentError as error:
        if not hub.ok:
            raise  # nothing answers at all: one sentence says more than a list of failures
        return Look([hub, Service("broker", False, error.sentence)])
    known = [
        hub,
        Service("broker", health.ready, f"version {health.version}" if health.ready else "starting"),
    ]
    if not health.ready:
        return Look(known)
    try:
        fleet, me = _fleet(client), client.me()
        parts = known + _machine(fleet, me) + (_disk(client) if fleet else [])
        return Look(parts, fleet, client.leases(live=True), me.simulated)
    except AllotmentError:
        if hub.ok:
            raise
        return Look(known)  # without the hub the broker cannot tell whose token this is


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


def _machine(fleet: Fleet | None, me: Me) -> list[Service]:
    """Agent and engine. People who are no operators learn what they are, not how they do."""
    engine = (fleet.engine.name if fleet else None) or me.engine or "unknown"
    if fleet is None:
        gpus = "GPUs are simulated (no real card is behind them)" if me.simulated else "only operators see it"
        return [Service("agent", None, gpus), Service("engine", None, engine)]
    return [_part("agent", fleet.agent, _hardware(fleet)), _part("engine", fleet.engine, engine)]


def _disk(client: Client) -> list[Service]:
    """The fullest disk, or why nothing new is started; no line from a broker that does not tell."""
    try:
        disk = client.disk()
    except Refused:
        return []
    return [Service("disk", disk.ok, _room(disk) if disk.ok else disk.reason or "too little room")]


def _room(disk: Disk) -> str:
    known = [(place.free_bytes, place.path) for place in disk.places if place.free_bytes is not None]
    if not known:
        return "unknown"
    free, path = min(known)
    limited = {None: "", "none": "; scratch is measured, not limited"}
    scratch = limited.get(disk.quota, f"; scratch is limited by {disk.quota}")
    return f"{free / 2**30:.1f} GiB free at {path}{scratch}"


def _part(name: str, part: Part, note: str) -> Service:
    return Service(name, part.ok, note if part.ok else part.problem or "does not answer")


def _hardware(fleet: Fleet) -> str:
    count = f"{len(fleet.gpus)} GPU{'' if len(fleet.gpus) == 1 else 's'}"
    if fleet.simulated:
        return f"{count}, simulated (no real card is behind them)"
    return f"{count}, driver {fleet.driver_version}" if fleet.driver_version else count


def _print(console: Console, url: str, look: Look) -> None:
    console.print(f"Allotment at {url}", markup=False, soft_wrap=True)
    for service in look.services:
        word, style = _WORDS[service.ok]
        console.print(f"  {service.name:7} ", end="")
        console.print(word, style=style, end="  ")
        console.print(service.note, markup=False, soft_wrap=True)
    for gpu in look.fleet.gpus if look.fleet else ():
        if gpu.problem:
            console.print(f"  GPU {gpu.index} is unusable: {gpu.problem}", style="red", markup=False)
    count = "1 live session" if len(look.sessions) == 1 else f"{len(look.sessions)} live sessions"
    console.print(f"{count}{':' if look.sessions else '.'}")
    if look.sessions:
        console.print(lease_table(look.sessions))


def _document(url: str, look: Look) -> dict[str, object]:
    return {
        "url": url,
        "services": [asdict(service) for service in look.services],
        "simulated": look.simulated,
        "sessions": [lease.model_dump(mode="json", by_alias=True) for lease in look.sessions],
    }
