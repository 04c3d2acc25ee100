"""images/build: an incomplete environment is one sentence, not a traceback; equal sources, equal recipe."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

IMAGES = Path(__file__).resolve().parents[2] / "images"
OFFERED = {"minimal", "scipy", "pytorch", "pytorch-devel", "tensorflow", "jax"}


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """images/builder by module: images/ is on no path but that of images/build."""
    monkeypatch.syspath_prepend(IMAGES)

    def load(name: str) -> Any:
        return importlib.import_module(f"builder.{name}")

    yield load
    for name in [one for one in sys.modules if one.partition(".")[0] == "builder"]:
        del sys.modules[name]


def describe(folder: Path, name: str, text: str, lock: str | None = None) -> None:
    (folder / name).mkdir()
    (folder / name / "environment.yaml").write_text(text)
    if lock is not None:
        (folder / name / "cpu.lock").write_text(lock)


def test_what_is_missing_is_named(builder: Any, tmp_path: Path) -> None:
    describe(tmp_path, "bare", "title: Bare\n")
    describe(tmp_path, "nameless", "packages: [numpy]\n")
    known = builder("environments").Environments(folders=[tmp_path])
    error = builder("errors").BuildError
    with pytest.raises(error, match="there are: bare, nameless"):
        known.told("none")
    with pytest.raises(error, match=r"There is no environment '\.\./bare'"):
        known.told("../bare")
    with pytest.raises(error, match="names no title"):
        known.told("nameless")
    with pytest.raises(error, match="images/lock bare cpu"):
        known.pins("bare", "cpu")


def test_pins_are_the_base_s_and_its_own(builder: Any, tmp_path: Path) -> None:
    more = tmp_path / "more"
    more.mkdir()
    describe(tmp_path, "base", "title: Base\n", "numpy==1.0 \\\n    --hash=sha256:0\n")
    describe(more, "upon", "title: Upon\nbase: base\n", "# head\nTorch==2.0\n")
    known = builder("environments").Environments(folders=[tmp_path, more])
    assert known.pins("upon", "cpu") == {"numpy": "1.0", "torch": "2.0"}
    assert known.in_order(["upon"]) == ["base", "upon"]
    assert known.effective_lock("upon", "cuda").endswith("Torch==2.0\n")
    before = known.lock_digest("upon", "cpu")
    (more / "upon" / "cpu.lock").write_text("# another head\nTorch==2.0\n")
    assert known.lock_digest("upon", "cpu") == before
    (tmp_path / "base" / "cpu.lock").write_text("numpy==1.1\n")
    assert known.lock_digest("upon", "cpu") != before


def test_every_environment_has_its_locks_and_what_it_needs(builder: Any) -> None:
    known = builder("environments").Environments(folders=[IMAGES])
    assert {file.parent.name for file in IMAGES.glob("*/environment.yaml")} == OFFERED
    for name in OFFERED:
        shown = set(known.told(name)["packages"]) - {"python", "allotment"}
        either = set(known.pins(name, "cpu")) | set(known.pins(name, "cuda"))
        assert shown - either == set(), name
        needs_cuda = known.lock(name, "cuda").name == "cuda.lock"
        assert needs_cuda == (name not in {"minimal", "scipy"})
        assert ("minimum_driver" in known.told(name)) == needs_cuda
        assert ("minimum_compute_capability" in known.told(name)) == needs_cuda
        assert known.python(name, "cuda") == "3.11.2"
        packages = [line for line in known.effective_lock(name, "cuda").splitlines() if "==" in line]
        assert all("--hash=sha256:" in line for line in packages)
        assert len({line.partition("==")[0] for line in packages}) == len(packages), "pinned twice"


def test_a_lock_holds_what_its_requirements_want(builder: Any) -> None:
    """A requirement added without a new lock would silently be missing in the image."""
    known = builder("environments").Environments(folders=[IMAGES])
    for name in OFFERED:
        for variant in ("cpu", "cuda"):
            files = [IMAGES / name / "requirements.in", IMAGES / name / f"requirements.{variant}.in"]
            lines = [line for file in files if file.exists() for line in file.read_text().splitlines()]
            wanted = {
                line.partition("[")[0].partition(">")[0].partition("=")[0]
                for line in lines
                if not line.startswith("#")
            }
            assert wanted - set(known.pins(name, variant)) == set(), (name, variant)


def test_equal_sources_give_equal_recipes(builder: Any, tmp_path: Path) -> None:
    context = builder("context")
    known = builder("environments").Environments(folders=[IMAGES])
    wheel = tmp_path / "wheel"
    wheel.mkdir()
    (wheel / "allotment-1-py3-none-any.whl").write_bytes(b"PK")
    recipes = []
    for number, card in enumerate(({"name": "pytorch"}, {"name": "pytorch"}, {"name": "other"})):
        folder = tmp_path / str(number)
        context.finish_context(folder, known, "pytorch", "cpu", wheel=wheel, card=card)
        assert not list(folder.rglob("__pycache__"))
        assert {path.stat().st_mode & 0o777 for path in folder.rglob("*")} <= {0o644, 0o755}
        recipes.append(context.recipe(folder, "base"))
    assert recipes[0] == recipes[1] != recipes[2]
    assert context.recipe(tmp_path / "0", "another base") != recipes[0]


def test_what_an_image_prints_is_no_word_of_the_build(builder: Any) -> None:
    said = builder("engine").quoted("one\rallotment/minimal:0-cpu is ready\n\x1b[2Jtwo\u2028three")
    assert said == "  one\n  allotment/minimal:0-cpu is ready\n  ?[2Jtwo\n  three\n"
    assert builder("engine").quoted("") == ""


def test_local_wheels_travel_only_when_pinned(builder: Any, tmp_path: Path) -> None:
    describe(tmp_path, "one", "title: One\n", "torch==2.0+cpu\nsome-thing==1.0\n")
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for name in ("torch-2.0+cpu-cp311-x.whl", "torch-2.1+cpu-cp311-x.whl", "some_thing-1.0-py3-none-any.whl"):
        (wheels / name).touch()
    known = builder("environments").Environments(folders=[tmp_path])
    builder("context").packages_context(tmp_path / "made", known, "one", "cpu", wheels=wheels)
    there = sorted(file.name for file in (tmp_path / "made" / "wheels").iterdir())
    assert there == ["some_thing-1.0-py3-none-any.whl", "torch-2.0+cpu-cp311-x.whl"]
    assert "FROM ${BASE_IMAGE}" in (tmp_path / "made" / "Dockerfile").read_text()
