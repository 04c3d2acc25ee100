"""`allot explain LEASE`: why a lease waits or was refused, and what would help."""

from __future__ import annotations

from typing import Annotated

import typer

from allotment.console import AsJson, DataDir, broker, print_json, screen, since
from allotment.models import Explanation, RuleDevice

__all__ = ["explain"]


def explain(
    lease: Annotated[str, typer.Argument(help="The lease, as `allot leases` shows it.")],
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Why a lease waits or was refused: which rule, which devices, who holds them, what would help."""
    with broker(data_dir) as client:
        found = client.explain(lease)
    if as_json:
        print_json(found)
        return
    for line in lines_of(found):
        screen().print(line, markup=False, soft_wrap=True)


def lines_of(found: Explanation) -> list[str]:
    """The explanation as lines of plain text."""
    lines = [f"Lease {found.lease} is {found.state}. {found.sentence}"]
    lines += [f"  rule {rule.rule}: {rule.sentence}" for rule in found.rules]
    if found.devices:
        lines.append("Devices:")
        lines += [f"  {_device(device)}" for device in found.devices]
    if found.help:
        lines.append("What would help:")
        lines += [f"  - {sentence}" for sentence in found.help]
    return lines


def _device(device: RuleDevice) -> str:
    where = device.gpu_uuid
    if device.placement:
        start, size = device.placement
        where += f" memory slices {start}-{start + size - 1}"
    held = f"held by {device.holder}" if device.holder else "free"
    if device.since:
        held += f" since {since(device.since)}"
    return f"{where}: {held}" + (f" (lease {device.lease})" if device.lease else "")
