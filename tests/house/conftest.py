"""What the house rules look at: the files that git knows or would add."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def files(root: Path) -> list[Path]:
    """Every tracked or new, not ignored file that exists."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    said = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout.decode()
    return [root / name for name in sorted(set(said.split("\0"))) if name and (root / name).is_file()]


@pytest.fixture(scope="session")
def modules(files: list[Path]) -> list[Path]:
    return [path for path in files if path.suffix == ".py"]
