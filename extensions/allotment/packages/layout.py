"""Where an overlay lies: ~/.allotment/packages/ENVIRONMENT/pythonX.Y, laid out as pip's user scheme is."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SWITCH", "Overlay", "overlay_of", "overlays_below", "packages_folder"]

SWITCH = "allotment"
"""What images set PYTHONNOUSERSITE to: no Python reads ~/.local, and the hook takes its place. Any other
value (pip's own builds set 1) turns the overlay off, too."""

_FIRST = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_REST = _FIRST | frozenset("._-")


class Overlay:
    """The paths of one overlay. `python` is "3.11"; nothing needs to exist.

    A plain class of strings: dataclasses and re would each cost every start of Python more than all the
    rest of the hook.
    """

    __slots__ = ("environment", "folder", "python")

    def __init__(self, *, folder: str, environment: str, python: str) -> None:
        self.folder = folder
        """~/.allotment/packages/ENVIRONMENT"""
        self.environment = environment
        self.python = python

    @property
    def root(self) -> str:
        return os.path.join(self.folder, f"python{self.python}")

    @property
    def site_packages(self) -> str:
        return os.path.join(self.root, "lib", f"python{self.python}", "site-packages")

    @property
    def scripts(self) -> str:
        return os.path.join(self.root, "bin")

    @property
    def lock(self) -> str:
        """Beside the root: it outlives moving that aside."""
        return os.path.join(self.folder, f".lock-python{self.python}")

    @property
    def marker(self) -> str:
        return os.path.join(self.root, "made-for.json")

    @property
    def checked(self) -> str:
        return os.path.join(self.root, "checked.json")

    @property
    def unfinished(self) -> str:
        """There while a pip works, and after one that was killed."""
        return os.path.join(self.root, "unfinished")

    @property
    def warning(self) -> str:
        """A sentence for terminals, there only while the overlay is known to be broken."""
        return os.path.join(self.root, "broken.txt")


def packages_folder(environ: Mapping[str, str]) -> str:
    """~/.allotment/packages of the person whose HOME this is."""
    home = environ.get("HOME") or os.path.expanduser("~")
    return os.path.join(home, ".allotment", "packages")


def overlay_of(environ: Mapping[str, str], version: tuple[int, int]) -> Overlay | None:
    """This session's overlay; None where sessions run without images, or with a name that is none."""
    name = environ.get("ALLOTMENT_ENVIRONMENT", "")
    if environ.get("PYTHONNOUSERSITE") != SWITCH or not _is_word(name):
        return None
    folder = os.path.join(packages_folder(environ), name)
    return Overlay(folder=folder, environment=name, python=f"{version[0]}.{version[1]}")


def overlays_below(packages: str) -> list[Overlay]:
    """Every overlay that a home holds, by environment and Python version; those moved aside are none."""
    found = []
    for environment in _names(packages):
        folder = os.path.join(packages, environment)
        for name in _names(folder) if _is_word(environment) else ():
            python = name.removeprefix("python")
            if python != name and python.replace(".", "").isdigit():
                found.append(Overlay(folder=folder, environment=environment, python=python))
    return found


def _is_word(name: str) -> bool:
    return 0 < len(name) <= 64 and name[0] in _FIRST and set(name) <= _REST


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
