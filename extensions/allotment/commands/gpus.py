"""`allot gpus`: each GPU's slices drawn on its axis, with holders for operators."""

from __future__ import annotations

from decimal import Decimal

from rich.console import Console
from rich.table import Table

from allotment.axis import LEGEND, draw
from allotment.client import Client
from allotment.console import AsJson, DataDir, broker, exact, print_json, screen, since
from allotment.errors import Refused
from allotment.fleet import Fleet, FleetGpu, FleetSlice, Whole
from allotment.models import Flavor

__all__ = ["gpus"]


def gpus(as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """Each GPU's slices on its axis, with holders (operators); what is free for you (everybody else)."""
    with broker(data_dir) as client:
        fleet, flavors = _look(client)
    if fleet is None:
        if as_json:
            print_json(flavors)
        else:
            _print_flavors(screen(), flavors)
    elif as_json:
        print_json(fleet)
    else:
        _print_fleet(screen(), fleet)


def _look(client: Client) -> tuple[Fleet | None, list[Flavor]]:
    try:
        return client.fleet(), []
    except Refused as refused:
        # Only operators may see who holds what; the free counts are for everybody.
        if refused.code != "not_allowed":
            raise
        return None, client.flavors()


def _print_flavors(console: Console, flavors: list[Flavor]) -> None:
    console.print("Only operators see the cards themselves. What you can have:")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("Flavor", "Title", "Free", "Of", "Per hour", ""):
        table.add_column(name)
    for flavor in flavors:
        free, total = ("-" if count is None else str(count) for count in (flavor.free, flavor.total))
        quote = flavor.quote or {}
        price = f"{exact(Decimal(quote.get('price_per_hour', flavor.price_per_hour)))} {flavor.currency}"
        reason = quote.get("refusal") or "" if flavor.available else flavor.reason or "not available"
        table.add_row(flavor.id, flavor.title, free, total, price, reason)
    console.print(table)


def _print_fleet(console: Console, fleet: Fleet) -> None:
    if fleet.simulated:
        console.print("These GPUs are simulated: no real card is behind them.", style="yellow")
    for gpu in fleet.gpus:
        _print_gpu(console, gpu)
    if fleet.gpus:
        console.print(LEGEND, style="dim")
    else:
        console.print(f"{fleet.node or 'This machine'} has no GPU that Allotment can see.")
    for stray in fleet.strays:
        note = f": {stray.note}" if stray.note else ""
        console.print(f"Unknown workload {stray.engine_ref}{note}", style="red", markup=False)


def _print_gpu(console: Console, gpu: FleetGpu) -> None:
    mode = f"MIG, pool {gpu.pool}" if gpu.mig else f"whole card, pool {gpu.pool}"
    if gpu.pool is None:
        mode = "in no pool, not offered"
    size = gpu.memory_bytes / 2**30
    title = f"GPU {gpu.index}  {gpu.model}  {size:.0f} GiB  {mode}  {gpu.uuid}"
    console.print(title, style="bold", markup=False, soft_wrap=True)
    if gpu.problem:
        console.print(f"  unusable: {gpu.problem}", style="red", markup=False)
    for line in draw(gpu, width=console.width - 2):
        if line.plain.strip():
            line.pad_left(2)
            console.print(line, no_wrap=True, overflow="crop")
    for piece in gpu.slices:
        if piece.state != "idle":
            console.print(f"    {_held(piece)}", markup=False, soft_wrap=True)
    if gpu.whole and gpu.whole.state != "free":
        console.print(f"    {_words(gpu.whole)}", markup=False, soft_wrap=True)
    for process in gpu.processes:
        if not process.explained:
            sentence = f"    process {process.pid} ({process.name or 'unknown program'}) belongs to no lease"
            console.print(sentence, style="red", markup=False)


def _held(piece: FleetSlice) -> str:
    last = piece.start + piece.size - 1
    where = f"{piece.start}" if piece.size == 1 else f"{piece.start}-{last}"
    return f"{where:>5}  {piece.profile}  {_words(piece)}"


def _words(held: FleetSlice | Whole) -> str:
    """State, holder, lease, since when and why, as far as they are known."""
    lease = f"lease {held.lease}" if held.lease else None
    when = f"since {since(held.since)}" if held.since else None
    return "  ".join(part for part in (held.state, held.user, lease, when, held.note) if part)
