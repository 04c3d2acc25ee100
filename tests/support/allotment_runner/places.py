"""Where the runner keeps things, and what the layers are."""

from __future__ import annotations

from pathlib import Path

__all__ = ["BENCHES", "CACHE", "GROUPS", "LAYERS", "LIMIT_S", "RESULTS", "ROOT", "VENV", "has_tests"]

ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / ".cache"
VENV = CACHE / "venv"
RESULTS = CACHE / "results"

GROUPS: tuple[tuple[str, ...], ...] = (
    ("house", "unit", "contract"),
    ("broker", "hub"),
    ("host", "docker"),
    ("recovery", "e2e"),
    ("gpu",),
)
"""Layers of one group run side by side: on two cores, each waits for most of its time."""

LAYERS = tuple(layer for group in GROUPS for layer in group)
BENCHES = {
    "bench-allocator": "allocator.py",
    "bench-broker": "broker.py",
    "bench-data": "data.py",
    "bench-images": "images.py",
    "bench-metering": "metering.py",
    "bench-spawn": "spawn.py",
}
LIMIT_S = 3600.0
"""A layer that runs longer is stopped and counts as failed."""


def has_tests(layer: str) -> bool:
    """Whether the folder of this layer exists and holds test files."""
    return any((ROOT / "tests" / layer).rglob("test_*.py"))
