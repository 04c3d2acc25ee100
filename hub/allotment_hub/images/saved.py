"""A saved environment as a folder that images/build understands: its packages upon its base."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from allotment_hub.broker.services.saved_views import Package, SavedView
from allotment_hub.config_loading import load_environment
from allotment_hub.environment import Environment

__all__ = ["drop_folder", "lock_text", "write_folder"]

_SHOWN = 12
_INHERITED = ("minimum_driver", "minimum_compute_capability", "index")


def write_folder(folder: Path, saved: SavedView, *, images: Path) -> None:
    """Write `folder`/NAME: environment.yaml and cpu.lock, which serves both variants.

    What the base needs of a machine, and where its wheels come from, is the same here: it is read from
    `images`. A killed call leaves what the next one writes anew.
    """
    target = folder / saved.name
    target.mkdir(mode=0o755, parents=True, exist_ok=True)
    names = [one.name.lower() for one in saved.packages]
    told: dict[str, Any] = {
        "title": saved.title,
        "description": f"What somebody installed upon {saved.base}, and shares",
        "base": saved.base,
        "packages": ["python", *names[:_SHOWN], "allotment"],
        **_inherited(images, saved.base),
    }
    _write(target / "cpu.lock", lock_text(saved))
    _write(target / "environment.yaml", yaml.safe_dump(told, sort_keys=False, allow_unicode=True))


def drop_folder(folder: Path, name: str) -> None:
    """After an approval was taken back: nobody builds it by mistake."""
    shutil.rmtree(folder / name, ignore_errors=True)


def lock_text(saved: SavedView) -> str:
    """A requirements file of pins; hashes only where every package has one, as pip wants it."""
    hashed = all(one.hashes for one in saved.packages)
    head = f"# Saved environment {saved.name}, approved {saved.checksum[:12]}.\n"
    return head + "".join(f"{_line(one, hashed=hashed)}\n" for one in saved.packages)


def _line(package: Package, *, hashed: bool) -> str:
    name = package.name.lower()
    line = f"{name} @ {package.link}" if package.link else f"{name}=={package.version}"
    return line + "".join(f" --hash=sha256:{one}" for one in package.hashes if hashed)


def _inherited(images: Path, base: str) -> Mapping[str, Any]:
    """From the base, or from what that is built upon."""
    found: dict[str, Any] = {}
    name: str | None = base
    while name is not None:
        file = images / name / "environment.yaml"
        told = load_environment(file) if file.exists() else Environment(title=name)
        for key, value in json.loads(told.model_dump_json(include=set(_INHERITED))).items():
            if value and key not in found:
                found[key] = value
        name = told.base
    return found


def _write(path: Path, text: str) -> None:
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
