"""Which files of a folder are here already: a fetch that was killed does not fetch them again."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from allotment_hub.data.partial import Received
from allotment_hub.data.sources import Entry

__all__ = ["Journal"]


class Journal:
    """Lines of JSON beside the files. A file counts only if its bytes still have the sum that was written
    down: neither a half-written line nor one that is ahead of the disk can be believed."""

    def __init__(self, path: Path, *, data: Path) -> None:
        self._path = path
        self._data = data
        self._old: dict[str, tuple[str, Received]] = {}
        self._seen: set[str] = set()
        self._fresh = not path.exists()
        if not self._fresh:
            self._read()

    def _read(self) -> None:
        for line in self._path.read_bytes().splitlines():
            try:
                name, version, size, sha256 = json.loads(line)
                self._old[str(name)] = str(version), Received(int(size), str(sha256))
            except (ValueError, TypeError):
                continue
        if not self._path.read_bytes().endswith(b"\n"):
            with self._path.open("ab") as target:
                target.write(b"\n")

    def had(self, entry: Entry) -> Received | None:
        """What is here of this very version, its bytes read and compared; None when it must be fetched."""
        self._seen.add(entry.name)
        version, received = self._old.get(entry.name, (None, None))
        path = self._data / entry.name
        if received is None or entry.version is None or version != entry.version or not path.is_file():
            return None
        with path.open("rb") as held:
            return received if hashlib.file_digest(held, "sha256").hexdigest() == received.sha256 else None

    def add(self, entry: Entry, received: Received) -> None:
        if entry.version is None:
            return
        line = json.dumps([entry.name, entry.version, received.size_bytes, received.sha256])
        with self._path.open("a", encoding="ascii") as target:
            target.write(line + "\n")

    def drop_others(self) -> None:
        """Remove what an earlier run fetched and the source no longer has."""
        for path in sorted(self._data.rglob("*"), reverse=True):
            if path.is_file() and str(path.relative_to(self._data)) not in self._seen:
                path.unlink()
            elif path.is_dir() and not any(path.iterdir()):
                path.rmdir()
