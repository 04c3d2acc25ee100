"""`allot leases`: who holds or waits for what."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from allotment.console import AsJson, DataDir, broker, exact, print_json, screen, since
from allotment.models import Lease
from allotment.tables import whole_column

__all__ = ["devices_of", "lease_table", "leases"]


def leases(
    everything: Annotated[bool, typer.Option("--all", help="Ended ones too.")] = False,
    user: Annotated[str | None, typer.Option(help="Only this person's.", show_default=False)] = None,
    limit: Annotated[int, typer.Option(min=1, max=200, help="At most this many.")] = 50,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Leases, newest first: your own, or everybody's for operators."""
    with broker(data_dir) as client:
        found = client.leases(user=user, live=None if everything else True, limit=limit)
    if as_json:
        print_json(found)
    elif found:
        screen().print(lease_table(found))
    else:
        screen().print("No leases." if everything else "No live leases. With --all you see ended ones too.")


def lease_table(found: list[Lease]) -> Table:
    """A row a lease; the identifier is never cut, so that it can be pasted into `allot explain`."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    whole_column(table, "Lease", [lease.id for lease in found])
    for name in ("Person", "Server", "Environment", "Flavor", "State", "Device", "Since"):
        table.add_column(name, overflow="fold")
    whole_column(table, "Per hour", [exact(lease.price_per_hour) for lease in found])
    whole_column(table, "Cost", [_cost(lease) for lease in found])
    for lease in found:
        moment = lease.ended_at or lease.active_at or lease.granted_at
        table.add_row(
            lease.id, lease.user, lease.server or "(default)", lease.environment, lease.flavor, _state(lease),
            devices_of(lease), since(moment), exact(lease.price_per_hour),
            _cost(lease),
        )  # fmt: skip
    return table


def devices_of(lease: Lease) -> str:
    """`1g.10gb at 0` for a slice, `whole GPU` for a card, `-` for none."""
    parts = [
        f"{device.profile} at {device.placement[0]}" if device.placement else device.profile
        for device in lease.devices
        if device.profile is not None
    ]
    whole = len(lease.devices) - len(parts)
    if whole:
        parts.append("whole GPU" if whole == 1 else f"{whole} whole GPUs")
    return ", ".join(parts) or "-"


def _cost(lease: Lease) -> str:
    """So far, refunds taken off; a dash before there is any."""
    return "-" if lease.cost is None else f"{exact(lease.cost)} {lease.currency or ''}".strip()


def _state(lease: Lease) -> str:
    if lease.state == "queued" and lease.place is not None:
        return f"queued, place {lease.place}"
    if lease.state == "ended" and lease.end_reason:
        return f"ended ({lease.end_reason})"
    return lease.state
