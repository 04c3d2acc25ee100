"""A GPU's slices drawn to scale on its memory axis, in characters."""

from __future__ import annotations

from rich.text import Text

from allotment.fleet import FleetGpu, FleetSlice

__all__ = ["LEGEND", "draw"]

_LOOK = {
    "leased": ("█", "bold green"),
    "idle": ("░", "cyan"),
    "cutting": ("~", "yellow"),
    "foreign": ("▒", "magenta"),
    "quarantined": ("!", "bold red"),
    "held": ("!", "bold red"),
}
_FREE = "·"
LEGEND = "█ leased  ░ idle slice  · uncut  ~ being cut  ▒ not Allotment's  ! held back"


def draw(gpu: FleetGpu, *, width: int) -> tuple[Text, Text]:
    """Two lines of at most `width` characters: the profiles' names, and the axis below them.

    A GPU without MIG is one block. Each memory slice has the same width, so placements can be compared.
    """
    if not gpu.axis:
        return _whole(gpu, width=width)
    cell = max(3, min(9, (width - 1) // gpu.axis - 1))
    names, bar = Text(" "), Text("|")
    at = 0
    for piece in sorted(gpu.slices, key=lambda piece: piece.start):
        # A +me slice or a half-made one can share a start with another: draw what still fits.
        if piece.start < at:
            continue
        _add_free(names, bar, piece.start - at, cell)
        _add_piece(names, bar, piece, cell)
        at = piece.start + piece.size
    _add_free(names, bar, gpu.axis - at, cell)
    names.rstrip()
    return names, bar


def _whole(gpu: FleetGpu, *, width: int) -> tuple[Text, Text]:
    inside = max(8, min(8 * 9 + 7, width - 2))
    state = gpu.whole.state if gpu.whole else "free"
    shape, style = {
        "leased": _LOOK["leased"],
        "blocked": _LOOK["foreign"],
        "quarantined": _LOOK["quarantined"],
    }.get(state, (_FREE, "dim"))
    bar = Text("|").append(shape * inside, style=style).append("|")
    return Text(" whole card"), bar


def _add_free(names: Text, bar: Text, count: int, cell: int) -> None:
    for _ in range(max(0, count)):
        names.append(" " * (cell + 1))
        bar.append(_FREE * cell, style="dim").append("|")


def _add_piece(names: Text, bar: Text, piece: FleetSlice, cell: int) -> None:
    inside = piece.size * (cell + 1) - 1
    shape, style = _LOOK.get(piece.state, ("?", "red"))
    label = piece.profile if len(piece.profile) <= inside else piece.profile.split(".")[0]
    names.append(label[:inside].ljust(inside + 1), style="bold")
    bar.append(shape * inside, style=style).append("|")
