"""Is an overlay whole? Broken, crashing and hanging packages; moving aside, starting clean, freezing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from allotment.packages import status
from allotment.packages.check import check_and_note, installed, problems_of
from allotment.packages.freeze import Pin, freeze
from allotment.packages.imports import python_starts, try_imports
from allotment.packages.layout import SWITCH, Overlay
from allotment.packages.marker import mark, read_json, write_json
from allotment.packages.report import begin_check, describe
from allotment.packages.tidy import move_aside, start_clean
from allotment_testing.tiny_wheels import tiny_wheel

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture
def overlay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Overlay:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ALLOTMENT_ENVIRONMENT", "minimal")
    monkeypatch.setenv("PYTHONNOUSERSITE", SWITCH)
    made = Overlay(folder=f"{tmp_path}/.allotment/packages/minimal", environment="minimal", python=PYTHON)
    Path(made.site_packages).mkdir(parents=True)
    return made


def put(overlay: Overlay, name: str, version: str = "1.0", files: Mapping[str, str] | None = None) -> Path:
    """As pip would lay it out."""
    folder = Path(overlay.site_packages)
    wheel = tiny_wheel(Path(overlay.folder), name, version, files=files)
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(folder)
    wheel.unlink()
    return folder / f"{name}-{version}.dist-info"


def environ(overlay: Overlay) -> dict[str, str]:
    """This test's Python is no image's: it finds the overlay by PYTHONPATH."""
    return {**os.environ, "PYTHONPATH": overlay.site_packages}


def test_nothing_and_something_whole(overlay: Overlay) -> None:
    assert status() == {"state": "none"}
    assert begin_check() is False
    put(overlay, "alpha")
    mark(overlay)
    assert status()["state"] == "fine"
    assert begin_check() is False
    assert problems_of(overlay, environ(overlay)) == []


def test_after_an_update_of_the_image(overlay: Overlay) -> None:
    put(overlay, "alpha", files={"alpha/__init__.py": "raise ImportError('needs libfoo.so.1')\n"})
    mark(overlay)
    before = read_json(overlay.marker)
    assert before is not None
    write_json(overlay.marker, {**before, "base": "of another image"})
    assert status()["state"] == "unchecked"
    problems = check_and_note(overlay, environ(overlay))
    assert problems == ["alpha: alpha cannot be imported (ImportError: needs libfoo.so.1)."]
    found = status()
    assert (found["state"], found["problems"]) == ("broken", problems)
    assert [one["id"] for one in found["choices"]] == ["aside", "clean"]  # type: ignore[attr-defined]
    assert "allot env clean" in Path(overlay.warning).read_text()
    put(overlay, "alpha")
    os.utime(Path(overlay.site_packages, "alpha-1.0.dist-info"))
    assert status()["state"] == "unchecked"
    assert check_and_note(overlay, environ(overlay)) == []
    assert status()["state"] == "fine"
    assert not Path(overlay.warning).exists()


def test_a_killed_pip_is_noticed(overlay: Overlay) -> None:
    put(overlay, "alpha")
    mark(overlay)
    Path(overlay.unfinished).touch()
    Path(overlay.site_packages, "alpha", "__init__.py").unlink()
    assert describe(overlay)["state"] == "unchecked"
    assert "alpha is not installed completely: 1 of its files are missing." in check_and_note(
        overlay, environ(overlay)
    )
    assert not Path(overlay.unfinished).exists()


def test_what_crashes_or_hangs_is_named_and_the_rest_is_tried(overlay: Overlay) -> None:
    put(overlay, "crash", files={"crash.py": "import os; os.abort()\n"})
    put(overlay, "hang", files={"hang.py": "import time; time.sleep(3600)\n"})
    put(overlay, "leaves", files={"leaves.py": "raise SystemExit(0)\n"})
    put(overlay, "prints", files={"prints.py": "print('held\\n' * 1000)\n"})
    put(overlay, "worse", files={"worse.py": "import nowhere\n"})
    names = ["crash", "hang", "leaves", "prints", "worse"]
    failed = try_imports(names, environ(overlay), each_s=2)
    assert list(failed) == ["crash", "hang", "leaves", "worse"]
    assert "ends Python" in failed["crash"]
    assert "longer than" in failed["hang"]
    assert failed["worse"].startswith("ModuleNotFoundError")


def test_python_that_does_not_start(overlay: Overlay) -> None:
    Path(overlay.site_packages, "usercustomize.py").touch()
    Path(overlay.site_packages, "sitecustomize.py").write_text("import os; os._exit(7)\n")
    assert python_starts(environ(overlay)) == "it ended with status 7"
    [problem] = problems_of(overlay, environ(overlay))
    assert problem.startswith("Python does not start with these packages")


def test_the_background_check_runs_apart_from_what_it_judges(overlay: Overlay) -> None:
    put(overlay, "alpha")
    Path(overlay.site_packages, "json.py").write_text("raise SystemExit(9)\n")
    done = subprocess.run(
        [sys.executable, "-I", "-m", "allotment.packages.check"], env=environ(overlay), check=False, cwd="/"
    )
    assert done.returncode == 1
    checked = read_json(overlay.checked)
    assert checked is not None
    assert checked["problems"]


def test_moved_aside_nothing_is_lost(overlay: Overlay) -> None:
    put(overlay, "alpha")
    moved = move_aside(overlay)
    assert moved is not None
    assert (moved / "lib" / f"python{PYTHON}" / "site-packages" / "alpha").is_dir()
    assert installed(overlay) == []
    assert Path(overlay.site_packages).is_dir()


def test_started_clean_with_what_a_killed_call_left(overlay: Overlay, tmp_path: Path) -> None:
    put(overlay, "alpha")
    left = Path(overlay.folder, ".deleting-0123")
    left.mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    Path(overlay.site_packages, "link").symlink_to(elsewhere)
    Path(overlay.folder, ".deleting-4567").symlink_to(elsewhere)
    assert start_clean(overlay) is True
    assert (elsewhere / "kept").exists()
    assert sorted(one.name for one in Path(overlay.folder).iterdir()) == [
        f".lock-python{PYTHON}", f"python{PYTHON}",
    ]  # fmt: skip
    assert status() == {"state": "none"}


def test_what_others_could_not_ask_for_is_left_out_and_stops_nothing(overlay: Overlay) -> None:
    put(overlay, "alpha", "1.0")
    origins: dict[str, object] = {
        "beta": {"url": "http://example.org/beta-1.0.whl"},
        "gamma": {"url": "https://example.org/gamma", "vcs_info": {"vcs": "git"}},
        "delta": {"url": "https://example.org/delta", "vcs_info": [1]},
        "epsilon": {"url": "https://example.org/a b;c --pre"},
        "eta": {"url": "https://example.org/eta.whl", "archive_info": [1]},
        "iota": [],
        "kappa": {"url": "https://[x"},
        "lambda": {"url": "https://example.org/lambda.whl", "archive_info": {"hashes": [1], "hash": 5}},
    }
    for name, origin in origins.items():
        (put(overlay, name) / "direct_url.json").write_text(json.dumps(origin))
    metadata = put(overlay, "mu") / "METADATA"
    metadata.write_text("Metadata-Version: 2.1\nName: mu -r /etc/passwd\nVersion: 1.0\n")
    frozen = freeze(overlay)
    assert [one.name for one in frozen.pins] == ["alpha"]
    assert len(frozen.left_out) == len(origins) + 1


def test_frozen_with_where_it_came_from(overlay: Overlay) -> None:
    put(overlay, "alpha", "1.0")
    origins = {
        "beta": {"url": "https://example.org/beta-1.0.whl", "archive_info": {"hashes": {"sha256": "0" * 64}}},
        "gamma": {"url": "https://example.org/gamma", "vcs_info": {"vcs": "git", "commit_id": "f" * 40}},
        "delta": {"url": "file:///home/ada/delta", "dir_info": {"editable": True}},
        "epsilon": {"url": "ssh://host/epsilon", "vcs_info": {"vcs": "git", "commit_id": "f" * 40}},
    }
    for name, origin in origins.items():
        (put(overlay, name) / "direct_url.json").write_text(json.dumps(origin))
    (put(overlay, "zeta") / "direct_url.json").write_text("not json")
    frozen = freeze(overlay)
    assert frozen.pins == (
        Pin(name="alpha", version="1.0"),
        Pin(name="beta", version="1.0", link="https://example.org/beta-1.0.whl", hashes=("0" * 64,)),
        Pin(name="gamma", version="1.0", link=f"git+https://example.org/gamma@{'f' * 40}"),
    )
    assert [one.split()[0] for one in frozen.left_out] == ["delta", "epsilon", "zeta"]
