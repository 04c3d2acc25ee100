"""Reads `sim:2xA100-80GB:mig,2xA100-80GB:whole`: which simulated GPUs a machine has."""

from __future__ import annotations

import re
from dataclasses import dataclass

from allotment_spawner.gpu.simulator.models import known_models

__all__ = ["MAX_GPUS", "SimBoard", "parse"]

MAX_GPUS = 1024
_ITEM = re.compile(r"^(?:(\d{1,4})x)?([A-Za-z][A-Za-z0-9-]*)(?::([a-z]+))?$")
_ALIASES = {
    "A30": "A30-24GB",
    "A100": "A100-80GB",
    "H100": "H100-SXM-80GB",
    "H100-80GB": "H100-SXM-80GB",
    "H200": "H200-141GB",
    "GH200": "GH200-96GB",
    "B200": "B200-180GB",
    "GB200": "GB200-186GB",
    "RTX-PRO-6000": "RTX-PRO-6000-Blackwell-96GB",
}


@dataclass(frozen=True, slots=True)
class SimBoard:
    """One simulated GPU; boards of one item of the spec have the same `group`."""

    model: str
    mig: bool
    group: int


def parse(text: str) -> tuple[SimBoard, ...]:
    """The GPUs of a spec, in order. ValueError with one clear sentence when it is malformed."""
    if not text.startswith("sim:"):
        raise ValueError(f"a simulated machine is written sim:2xA100-80GB:mig, not {text!r}")
    boards: list[SimBoard] = []
    for group, item in enumerate(text.removeprefix("sim:").split(",")):
        match = _ITEM.match(item.strip())
        if match is None:
            raise ValueError(
                f"{item.strip()!r} is not COUNTxMODEL:mode; write for example 2xA100-80GB:mig or 1xH100:whole"
            )
        count, name, mode = int(match.group(1) or 1), match.group(2), match.group(3) or "mig"
        if mode not in ("mig", "whole"):
            raise ValueError(f"the mode of a simulated GPU is mig or whole, not {mode!r}")
        if not count >= 1 or len(boards) + count > MAX_GPUS:
            raise ValueError(f"a simulated machine has 1 to {MAX_GPUS} GPUs")
        boards.extend([SimBoard(_resolve(name), mode == "mig", group)] * count)
    return tuple(boards)


def _resolve(name: str) -> str:
    wanted = name.upper()
    by_upper = {key.upper(): key for key in (*known_models(), *_ALIASES)}
    if wanted not in by_upper:
        raise ValueError(
            f"no simulated GPU is called {name!r}; known are {', '.join(known_models())} "
            f"and the short names {', '.join(_ALIASES)}"
        )
    found = by_upper[wanted]
    return _ALIASES.get(found, found)
