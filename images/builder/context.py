"""Build contexts: what the engine gets to see, laid out so that the same sources give the same layers."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

from builder.environments import Environments
from builder.errors import BuildError

__all__ = ["build_wheel", "finish_context", "packages_context", "recipe"]

IMAGES = Path(__file__).resolve().parents[1]
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc")


def build_wheel(folder: Path) -> None:
    """The allotment wheel, made in the tree: its version is read from ../spawner."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    tree = IMAGES.parent / "extensions"
    result = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise BuildError(f"The allotment wheel could not be built:\n{result.stderr}")


def packages_context(
    context: Path, known: Environments, name: str, variant: str, *, wheels: Path | None
) -> None:
    """The slow part: the environment's Dockerfile (else the common one), its lock, its local wheels."""
    context.mkdir()
    own = known.folder(name) / "Dockerfile"
    shutil.copy(own if own.is_file() else IMAGES / "packages" / "Dockerfile", context / "Dockerfile")
    shutil.copy(known.lock(name, variant), context / "requirements.lock")
    (context / "wheels").mkdir()
    wanted = known.pins(name, variant)
    for file in sorted(wheels.glob("*.whl")) if wheels else []:
        package, version = file.name.split("-")[:2]
        # only pinned ones: a big folder must not travel to the engine whole
        if wanted.get(package.lower().replace("_", "-")) == version:
            shutil.copy(file, context / "wheels" / file.name)
    _same_modes(context)


def finish_context(
    context: Path, known: Environments, name: str, variant: str, *, wheel: Path, card: dict
) -> None:
    """The quick part, last so that an update of Allotment costs a few MB: files of the whole chain, the
    allotment wheel, the effective lock and `card` (what the image says of itself, environment.json)."""
    shutil.copytree(IMAGES / "finish", context, ignore=_LEFT_OUT)
    shutil.copytree(wheel, context / "allotment")
    (context / "files").mkdir()
    for one in known.chain(name):
        files = known.folder(one) / "files"
        if files.is_dir():
            shutil.copytree(files, context / "files", dirs_exist_ok=True, ignore=_LEFT_OUT)
    shared = context / "files" / "usr" / "local" / "share" / "allotment"
    shared.mkdir(parents=True, exist_ok=True)
    (shared / "requirements.lock").write_text(known.effective_lock(name, variant))
    (shared / "environment.json").write_text(json.dumps(card, indent=2, sort_keys=True) + "\n")
    _same_modes(context)


def _same_modes(context: Path) -> None:
    """A checkout's umask must not decide what a session may read."""
    context.chmod(0o755)
    for path in context.rglob("*"):
        if not path.is_symlink():
            runs = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if runs else 0o644)


def recipe(context: Path, *facts: str) -> str:
    """sha256 of everything in the context and of `facts`: equal recipes need no second build."""
    total = hashlib.sha256("\0".join(facts).encode())
    for path in sorted(context.rglob("*")):
        if path.is_file():
            mode = path.stat().st_mode & 0o777
            total.update(f"\0{path.relative_to(context)}\0{mode:o}\0".encode())
            total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()
