"""images/build: an incomplete environment is one sentence, not a traceback."""

from __future__ import annotations

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "images" / "build"


@pytest.fixture
def build(tmp_path: Path) -> Any:
    """The script as a module, with its images in a folder of the test's."""
    spec = spec_from_loader("images_build", SourceFileLoader("images_build", str(SCRIPT)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    setattr(module, "IMAGES", tmp_path)  # noqa: B010 - mypy knows no attributes of it
    return module


def describe(folder: Path, name: str, text: str) -> None:
    (folder / name).mkdir()
    (folder / name / "environment.yaml").write_text(text)


def test_what_is_missing_is_named(build: Any, tmp_path: Path) -> None:
    describe(tmp_path, "bare", "title: Bare\n")
    describe(tmp_path, "nameless", "packages: [numpy]\n")
    with pytest.raises(build.BuildError, match="there are: bare, nameless"):
        build.environment("none")
    with pytest.raises(build.BuildError, match="names no title"):
        build.environment("nameless")
    with pytest.raises(build.BuildError, match="images/lock bare cpu"):
        build.pins("bare", "cpu")


def test_pins_are_the_base_s_and_its_own(build: Any, tmp_path: Path) -> None:
    describe(tmp_path, "base", "title: Base\n")
    describe(tmp_path, "upon", "title: Upon\nbase: base\n")
    (tmp_path / "base" / "cpu.lock").write_text("numpy==1.0 \\\n    --hash=sha256:0\n")
    (tmp_path / "upon" / "cpu.lock").write_text("Torch==2.0\n")
    assert build.pins("upon", "cpu") == {"numpy": "1.0", "torch": "2.0"}
    assert build.in_order(["upon"]) == ["base", "upon"]
