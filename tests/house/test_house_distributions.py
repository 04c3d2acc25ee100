"""One version for all, and wheels that install what they should and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

PACKAGES = {"spawner": "allotment_spawner", "hub": "allotment_hub", "extensions": "allotment"}
NAMES = {"spawner": "allotment-spawner", "hub": "allotment-hub", "extensions": "allotment"}


@pytest.fixture(scope="module")
def wheels(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, zipfile.ZipFile]:
    """Each distribution's wheel, built from a copy of the tree without dependencies."""
    tree = tmp_path_factory.mktemp("tree")
    built = tmp_path_factory.mktemp("wheels")
    ignore = shutil.ignore_patterns("__pycache__", "node_modules", "*.egg-info")
    for name in PACKAGES:
        shutil.copytree(root / name, tree / name, ignore=ignore)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(built)]
    subprocess.run([*command, *(str(tree / name) for name in PACKAGES)], check=True, capture_output=True)
    found = {}
    for name, package in PACKAGES.items():
        (path,) = built.glob(f"{NAMES[name].replace('-', '_')}-*.whl")
        found[name] = zipfile.ZipFile(path)
        assert package
    return found


def test_versions_are_equal(root: Path) -> None:
    expected = (root / "spawner" / "VERSION").read_text().strip()
    assert {name: version(name) for name in NAMES.values()} == dict.fromkeys(NAMES.values(), expected)


@pytest.mark.parametrize("name", PACKAGES)
def test_wheel_installs_its_one_package(name: str, wheels: dict[str, zipfile.ZipFile], root: Path) -> None:
    expected = (root / "spawner" / "VERSION").read_text().strip()
    tops = {entry.split("/")[0] for entry in wheels[name].namelist()}
    prefix = NAMES[name].replace("-", "_")
    allowed = {PACKAGES[name], f"{prefix}-{expected}.dist-info", f"{prefix}-{expected}.data"}
    assert tops <= allowed
    assert PACKAGES[name] in tops


@pytest.mark.parametrize("name", PACKAGES)
def test_wheel_holds_every_file_of_its_package(
    name: str, wheels: dict[str, zipfile.ZipFile], root: Path, files: list[Path]
) -> None:
    """Templates, migrations, data files: what is in the tree is in the wheel."""
    inside = set(wheels[name].namelist())
    folder = root / name
    expected = {
        path.relative_to(folder).as_posix() for path in files if path.is_relative_to(folder / PACKAGES[name])
    }
    assert expected - inside == set()


def test_extensions_need_no_hub(root: Path) -> None:
    """The notebook image installs extensions alone."""
    wanted = tomllib.loads((root / "extensions" / "pyproject.toml").read_text())["project"]["dependencies"]
    assert not [
        item for item in wanted if item.startswith(("jupyterhub", "allotment", "sqlalchemy", "docker"))
    ]
