"""The first-run tour: laid into a home once, never over something, never half."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from allotment.welcome import offer_tour


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    folder = tmp_path / "shared"
    folder.mkdir()
    (folder / "tour.ipynb").write_text("{}")
    (folder / "environment.json").write_text(json.dumps({"name": "pytorch"}))
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def test_once_and_not_again_when_deleted(home: Path, shared: Path) -> None:
    made = offer_tour(home, shared=shared)
    assert made == home / "welcome-pytorch.ipynb"
    assert made.read_text() == "{}"
    assert offer_tour(home, shared=shared) is None
    made.unlink()
    assert offer_tour(home, shared=shared) is None
    assert not made.exists()


def test_another_environment_has_a_tour_of_its_own(home: Path, shared: Path) -> None:
    offer_tour(home, shared=shared)
    (shared / "environment.json").write_text(json.dumps({"name": "jax"}))
    assert offer_tour(home, shared=shared) == home / "welcome-jax.ipynb"


def test_what_is_there_stays(home: Path, shared: Path) -> None:
    (home / "welcome-pytorch.ipynb").symlink_to(home / "elsewhere")
    assert offer_tour(home, shared=shared) is None
    assert not (home / "elsewhere").exists()


def test_an_image_without_a_tour_offers_none(home: Path, shared: Path) -> None:
    (shared / "tour.ipynb").unlink()
    assert offer_tour(home, shared=shared) is None
    assert list(home.iterdir()) == []


def test_a_full_home_is_left_as_it_was(home: Path, shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", full)
        with pytest.raises(OSError, match="No space left"):
            offer_tour(home, shared=shared)
    assert list(home.iterdir()) == []
    assert offer_tour(home, shared=shared) == home / "welcome-pytorch.ipynb", "tried again at the next start"
