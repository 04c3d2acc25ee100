"""The cache's folders: what is being fetched, what is whole, what is on its way out.

CACHE/tmp/KEY      a fetch's own folder, until it is whole
CACHE/ready/KEY    manifest.json and data/, moved here in one step
CACHE/trash/NAME   moved here in one step, then removed at leisure
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Collection
from pathlib import Path

from allotment_hub.data.spec import Manifest

__all__ = ["Cache", "key_of"]


def key_of(name: str, source: str, checksum: str | None, *, unpack: bool) -> str:
    """The folder's name: another source, sum or way of unpacking is another content."""
    told = json.dumps([source, checksum, unpack]).encode()
    return f"{name}-{hashlib.sha256(told).hexdigest()[:12]}"


class Cache:
    """Every method touches the disk and may take long (a million files): call it off the event loop. Each
    may be interrupted anywhere and called again."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def open(self) -> None:
        """OSError when the folder cannot be made or written."""
        for part in ("tmp", "ready", "trash"):
            (self.root / part).mkdir(mode=0o700, parents=True, exist_ok=True)

    def free_bytes(self) -> int:
        found = os.statvfs(self.root)
        return found.f_bavail * found.f_frsize

    def work_folder(self, key: str) -> Path:
        return self.root / "tmp" / key

    def data_folder(self, key: str) -> Path:
        """What sessions see."""
        return self.root / "ready" / key / "data"

    def manifest(self, key: str) -> Manifest | None:
        """Of a whole dataset; None when it is not here."""
        try:
            return Manifest.model_validate_json((self.root / "ready" / key / "manifest.json").read_bytes())
        except (OSError, ValueError):
            return None

    def adopt(self, key: str) -> None:
        """A finished fetch becomes a dataset, in one step."""
        target = self.root / "ready" / key
        if target.exists():
            self.drop(key)
        self.work_folder(key).rename(target)
        _sync(self.root / "ready")
        _sync(self.root / "tmp")

    def drop(self, key: str) -> None:
        """Out of sight at once; removed by `empty_trash`."""
        self._bin(self.root / "ready" / key)

    def drop_work(self, key: str) -> None:
        self._bin(self.work_folder(key))

    def _bin(self, folder: Path) -> None:
        if folder.exists() or folder.is_symlink():
            folder.rename(self.root / "trash" / f"{folder.name}.{secrets.token_hex(4)}")
            _sync(folder.parent)

    def empty_trash(self) -> list[OSError]:
        """Until a look finds nothing: more may come meanwhile. What resists is left, told, and tried again
        by the next call: it must not keep the rest from use."""
        resists: dict[str, OSError] = {}
        while found := [one for one in (self.root / "trash").iterdir() if one.name not in resists]:
            for one in found:
                try:
                    if one.is_dir() and not one.is_symlink():
                        shutil.rmtree(one)
                    else:
                        one.unlink()
                except OSError as error:
                    resists[one.name] = error
        return list(resists.values())

    def sweep(self, *, ready: Collection[str], work: Collection[str]) -> None:
        """Bin what neither is to be kept nor being fetched: leftovers of a crash or an older version."""
        for part, keep in (("ready", ready), ("tmp", work)):
            for folder in (self.root / part).iterdir():
                if folder.name not in keep:
                    self._bin(folder)


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
