"""The overlay takes the place of ~/.local in one Python only, and knows which pip writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from allotment.packages.hook import command_of
from allotment.packages.layout import SWITCH, overlay_of, overlays_below, packages_folder

EXTENSIONS = Path(__file__).resolve().parents[2] / "extensions"
PLAIN = Path(sys.base_prefix, "bin", f"python3.{sys.version_info[1]}")
"""A Python that is no virtual environment."""
SHOW = (
    "import allotment.packages.hook as h, json, os, sys, sysconfig; h.switch_on(sys.base_prefix); "
    "print(json.dumps([sys.path, os.environ['PATH'], sysconfig.get_path('purelib', 'posix_user')]))"
)


def shown(home: Path, *options: str, script: str = SHOW, **changes: str) -> tuple[list[str], str, str]:
    variables = {
        "HOME": str(home),
        "PATH": os.defpath,
        "PYTHONPATH": str(EXTENSIONS),
        "PYTHONNOUSERSITE": "allotment",
        "ALLOTMENT_ENVIRONMENT": "minimal",
    }
    done = subprocess.run(
        [str(PLAIN), *options, "-c", script],
        env=variables | changes,
        cwd=home,
        capture_output=True,
        text=True,
        check=True,
    )
    path, programs, scheme = json.loads(done.stdout)
    return path, programs, scheme


def root_of(home: Path, environment: str = "minimal") -> Path:
    return home / ".allotment" / "packages" / environment / f"python3.{sys.version_info[1]}"


def site_of(home: Path) -> Path:
    return root_of(home) / "lib" / f"python3.{sys.version_info[1]}" / "site-packages"


def test_the_overlay_comes_before_the_systems_packages(tmp_path: Path) -> None:
    path, programs, scheme = shown(tmp_path)
    at = path.index(str(site_of(tmp_path)))
    system = [one for one in path if one.endswith(("dist-packages", "site-packages"))]
    assert system[0] == path[at] == scheme
    assert path.index("/usr/lib/python3.11" if "/usr/lib/python3.11" in path else path[1]) < at
    assert programs.split(":")[0] == str(root_of(tmp_path) / "bin")
    assert site_of(tmp_path).is_dir()
    assert not [one for one in path if ".local" in one]


def test_paths_of_pth_files_follow_at_once(tmp_path: Path) -> None:
    site_of(tmp_path).mkdir(parents=True)
    (site_of(tmp_path) / "mine.pth").write_text(f"{tmp_path}/work\n")
    (tmp_path / "work").mkdir()
    path, _, _ = shown(tmp_path)
    assert path.index(f"{tmp_path}/work") == path.index(str(site_of(tmp_path))) + 1


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        (["-s"], {}),
        ([], {"PYTHONNOUSERSITE": "1"}),
        ([], {"PYTHONNOUSERSITE": ""}),
        ([], {"ALLOTMENT_ENVIRONMENT": ""}),
        ([], {"ALLOTMENT_ENVIRONMENT": "../../etc"}),
        ([], {"ALLOTMENT_ENVIRONMENT": "Minimal"}),
    ],
)
def test_no_overlay(tmp_path: Path, options: list[str], changes: dict[str, str]) -> None:
    path, programs, _ = shown(tmp_path, *options, **changes)
    assert not [one for one in path if ".allotment" in one]
    assert ".allotment" not in programs
    assert not (tmp_path / ".allotment").exists()


def test_no_overlay_when_isolated(tmp_path: Path) -> None:
    script = f"import sys; sys.path.append({str(EXTENSIONS)!r}); {SHOW}"
    path, _, _ = shown(tmp_path, "-I", script=script)
    assert not [one for one in path if ".allotment" in one]


def test_a_virtual_environment_is_left_alone(tmp_path: Path) -> None:
    subprocess.run([str(PLAIN), "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    done = subprocess.run(
        [str(tmp_path / "venv" / "bin" / "python"), "-c", SHOW],
        env={
            "HOME": str(tmp_path),
            "PATH": os.defpath,
            "PYTHONPATH": str(EXTENSIONS),
            "PYTHONNOUSERSITE": "allotment",
            "ALLOTMENT_ENVIRONMENT": "minimal",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert ".allotment" not in done.stdout


def test_another_python_is_left_alone(tmp_path: Path) -> None:
    path, _, _ = shown(tmp_path, script=SHOW.replace("sys.base_prefix", "'/opt/conda'"))
    assert not [one for one in path if ".allotment" in one]


def test_python_starts_in_a_home_where_nothing_can_be_written(tmp_path: Path) -> None:
    home = tmp_path / "not-a-folder"
    home.touch()
    done = subprocess.run(
        [str(PLAIN), "-c", SHOW],
        env={
            "HOME": str(home),
            "PATH": os.defpath,
            "PYTHONPATH": str(EXTENSIONS),
            "PYTHONNOUSERSITE": "allotment",
            "ALLOTMENT_ENVIRONMENT": "minimal",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert ".allotment" not in json.loads(done.stdout)[1]


@pytest.mark.parametrize(
    ("line", "writes"),
    [
        ("python3 -m pip install six", True),
        ("python3 -W error -X dev -m pip --quiet uninstall -y six", True),
        ("python3 -Im pip install six", True),
        ("/usr/bin/python3 /usr/bin/pip install six", True),
        ("/usr/bin/python3 /home/ada/bin/pip3.11 install six", True),
        ("python3 /usr/lib/python3/dist-packages/pip install six", True),
        ("python3 /usr/lib/python3/dist-packages/pip/__main__.py install six", True),
        ("python3 -m pip list", False),
        ("python3 -m pip", False),
        ("python3 pipeline.py install", False),
        ("python3 -m pipx install black", False),
        ("python3 -c install -m pip", False),
        ("python3 -", False),
        ("python3", False),
    ],
)
def test_which_pip_writes(line: str, writes: bool) -> None:
    assert command_of(line.split()).pip_writes is writes


@pytest.mark.parametrize(
    ("line", "options", "module", "script", "arguments"),
    [
        ("python3 -sE a.py -I", "sE", "", "a.py", ["-I"]),
        ("python3 -Wignore -m a.b x", "W", "a.b", "", ["x"]),
        ("python3 --check-hash-based-pycs never -c pass 1", "", "", "", ["1"]),
        ("python3 -cpass 1", "", "", "", ["1"]),
        ("python3 -X importtime a", "X", "", "a", []),
    ],
)
def test_command_lines(line: str, options: str, module: str, script: str, arguments: list[str]) -> None:
    command = command_of(line.split())
    assert (command.options, command.module, command.script) == (options, module, script)
    assert list(command.arguments) == arguments


def test_overlays_of_a_home(tmp_path: Path) -> None:
    packages = Path(packages_folder({"HOME": str(tmp_path)}))
    for name in (
        "minimal/python3.11",
        "minimal/python3.11.aside-1-2",
        "pytorch/python3.12",
        "Odd/python3.11",
    ):
        (packages / name).mkdir(parents=True)
    found = [(one.environment, one.python) for one in overlays_below(str(packages))]
    assert found == [("minimal", "3.11"), ("pytorch", "3.12")]
    assert overlays_below(str(tmp_path / "nowhere")) == []
    assert overlay_of({"ALLOTMENT_ENVIRONMENT": "x" * 65, "PYTHONNOUSERSITE": SWITCH}, (3, 11)) is None
    assert overlay_of({"ALLOTMENT_ENVIRONMENT": "minimal"}, (3, 11)) is None
