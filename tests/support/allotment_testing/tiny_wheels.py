"""Wheels of a few bytes, written by hand: what tests install without any index."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["tiny_wheel"]


def tiny_wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    *,
    files: Mapping[str, str] | None = None,
    requires: Sequence[str] = (),
    scripts: Mapping[str, str] | None = None,
) -> Path:
    """A pure wheel of one module `name` that knows its VERSION; `files` instead of it, `scripts` besides."""
    info = f"{name}-{version}.dist-info"
    inside = dict(files or {f"{name}/__init__.py": f"VERSION = {version!r}\ndef main(): print(VERSION)\n"})
    inside[f"{info}/METADATA"] = "\n".join(
        ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        + [f"Requires-Dist: {one}" for one in requires]
        + [""]
    )
    inside[f"{info}/WHEEL"] = (
        "Wheel-Version: 1.0\nGenerator: tiny\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    if scripts:
        lines = "".join(f"{key} = {value}\n" for key, value in scripts.items())
        inside[f"{info}/entry_points.txt"] = f"[console_scripts]\n{lines}"
    record = [*inside, f"{info}/RECORD"]
    inside[f"{info}/RECORD"] = "".join(f"{one},,\n" for one in record)
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for inner, text in inside.items():
            wheel.writestr(inner, text)
    return path
