"""ruff, mypy and the import contracts agree with the tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BIN = Path(sys.executable).parent


def check(root: Path, *command: str) -> None:
    done = subprocess.run(
        [str(BIN / command[0]), *command[1:]], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff(root: Path) -> None:
    check(root, "ruff", "check", "--no-fix", "--output-format=concise", ".", "tests/run")


def test_format(root: Path) -> None:
    check(root, "ruff", "format", "--check", ".")


def test_types(root: Path) -> None:
    check(root, "mypy")


def test_import_contracts(root: Path) -> None:
    check(root, "lint-imports", "--no-logo", "--cache-dir", ".cache/imports")
