"""The folders of environments: what each one says of itself, and its lock files."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from builder.errors import BuildError

__all__ = ["Environments", "named_versions"]


class Environments:
    """Environments below `folders`, looked for in this order; each is a folder with an environment.yaml."""

    def __init__(self, *, folders: list[Path]) -> None:
        self._folders = folders

    def folder(self, name: str) -> Path:
        """Where the environment lies; BuildError when there is none of this name."""
        for one in self._folders:
            # a name with a slash or dots in it would look elsewhere
            if Path(name).name == name and (one / name / "environment.yaml").is_file():
                return one / name
        known = sorted(file.parent.name for one in self._folders for file in one.glob("*/environment.yaml"))
        raise BuildError(f"There is no environment {name!r}; there are: {', '.join(known)}.")

    def told(self, name: str) -> dict:
        """environment.yaml; BuildError when it has no title."""
        import yaml  # noqa: PLC0415 - not there before use_own_tools

        file = self.folder(name) / "environment.yaml"
        found = yaml.safe_load(file.read_text())
        if not isinstance(found, dict) or "title" not in found:
            raise BuildError(f"{file} names no title.")
        return found

    def chain(self, name: str) -> list[str]:
        """The environment with all that it is built upon, the lowest first."""
        base = self.told(name).get("base")
        return [*(self.chain(base) if base else []), name]

    def in_order(self, names: list[str]) -> list[str]:
        """The names with the environments they are built upon, each once, bases first."""
        return list(dict.fromkeys(one for name in names for one in self.chain(name)))

    def lock(self, name: str, variant: str) -> Path:
        """The variant's lock file; cpu.lock serves both where nothing of it depends on CUDA."""
        folder = self.folder(name)
        for file in (folder / f"{variant}.lock", folder / "cpu.lock"):
            if file.is_file():
                return file
        raise BuildError(f"{folder / variant}.lock is missing: write it with images/lock {name} {variant}.")

    def effective_lock(self, name: str, variant: str) -> str:
        """Every package of the image, its bases' first: what decides which packages it holds."""
        texts = [self.lock(one, variant).read_text() for one in self.chain(name)]
        lines = [line for text in texts for line in text.splitlines() if not line.startswith("#")]
        return "".join(f"{line}\n" for line in lines)

    def lock_digest(self, name: str, variant: str) -> str:
        """sha256 of the effective lock, in hexadecimal."""
        return hashlib.sha256(self.effective_lock(name, variant).encode()).hexdigest()

    def python(self, name: str, variant: str) -> str | None:
        """The Python that the lowest lock was written for, by its first line; None where it says nothing."""
        head = self.lock(self.chain(name)[0], variant).read_text().partition("\n")[0]
        found = re.search(r"for Python (\d+\.\d+\.\d+)", head)
        return found[1] if found else None

    def pins(self, name: str, variant: str) -> dict[str, str]:
        """Package versions of the variant's lock file and of its bases'."""
        return named_versions(self.effective_lock(name, variant))


def named_versions(lock: str) -> dict[str, str]:
    """Package -> version, names in lower case, of a lock file's text."""
    found = {}
    for line in lock.splitlines():
        package, mark, version = line.split(" ")[0].partition("==")
        if mark:
            found[package.lower()] = version
    return found
