"""`allot version`: what is installed here."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

from allotment.console import AsJson, print_json, screen

__all__ = ["version"]


def version(as_json: AsJson = False) -> None:
    """The versions of Allotment's parts that are installed here."""
    found: dict[str, object] = {}
    for name in ("allotment", "allotment-hub", "allotment-spawner"):
        try:
            found[name] = installed(name)
        except PackageNotFoundError:
            found[name] = None
    if as_json:
        print_json(found)
        return
    for name, number in found.items():
        screen().print(f"{name} {number or 'not installed here'}", markup=False)
