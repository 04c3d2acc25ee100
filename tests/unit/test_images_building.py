"""`allot images build` hands images/build's words on and knows what is ready."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from allotment_hub.images.building import BuildFailed, run_build

SCRIPT = """\
import os, sys
print("Building", *sys.argv[1:], flush=True)
print(os.environ["DOCKER_HOST"], flush=True)
print("  allotment/minimal:0-cpu is ready", flush=True)
print("allotment/pytorch:0-cpu is ready", flush=True)
print("x allotment/minimal:0-cpu is ready", flush=True)
print("allotment/minimal:1-cpu is ready", flush=True)
print("allotment/scipy:1-cpu is ready", flush=True)
sys.exit(int(os.environ["STATUS"]))
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """With a stand-in for images/build that says what the real one says."""
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "build").write_text(SCRIPT)
    return tmp_path


def build(checkout: Path, said: list[str], *, status: int) -> list[str]:
    env = {**os.environ, "DOCKER_HOST": "unix:///x.sock", "STATUS": str(status)}
    return run_build(checkout, ["minimal", "scipy"], ["--no-audit"], env=env, say=said.append)


def test_what_is_ready_is_told(checkout: Path) -> None:
    said: list[str] = []
    assert build(checkout, said, status=0) == ["allotment/minimal:1-cpu", "allotment/scipy:1-cpu"]
    assert said[:2] == ["Building minimal scipy --no-audit", "unix:///x.sock"]


def test_a_build_that_fails_offers_nothing(checkout: Path) -> None:
    with pytest.raises(BuildFailed, match="status 2"):
        build(checkout, [], status=2)
