"""The folder of a saved environment: what images/build reads of it, and nothing that pip would obey."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from allotment_hub.broker.services.saved_views import SavedView
from allotment_hub.config_loading import load_environment
from allotment_hub.images.saved import drop_folder, lock_text, write_folder
from pydantic import ValidationError

HASH = "0" * 64


def saved(*packages: dict[str, Any], base: str = "minimal", title: str = "Team") -> SavedView:
    return SavedView.model_validate(
        {
            "name": "team",
            "title": title,
            "owner": "ann",
            "base": base,
            "base_digest": "sha256:" + HASH,
            "packages": packages,
            "checksum": HASH,
            "state": "approved",
            "note": None,
            "asked_at": datetime(2026, 11, 30, tzinfo=UTC),
            "decided_at": None,
            "decided_by": None,
        }
    )


def pins(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_pins_with_hashes_for_all_or_for_none() -> None:
    six = {"name": "Six", "version": "1.17.0", "hashes": [HASH]}
    ten = {"name": "ten", "version": "1!2+cu121", "hashes": []}
    assert pins(lock_text(saved(six))) == [f"six==1.17.0 --hash=sha256:{HASH}"]
    assert pins(lock_text(saved(six, ten))) == ["six==1.17.0", "ten==1!2+cu121"]
    link = "git+https://example.org/tool@" + "f" * 40
    assert pins(lock_text(saved({"name": "tool", "version": "2", "link": link}))) == [f"tool @ {link}"]


def test_what_the_base_needs_is_needed_here_too(tmp_path: Path) -> None:
    images = tmp_path / "images"
    for name, text in {
        "ground": "title: Ground\nminimum_driver: '525.60'\nindex: {cuda: 'https://example.org/a'}\n",
        "torch": "title: Torch\nbase: ground\nindex: {cpu: 'https://example.org/b'}\n",
    }.items():
        (images / name).mkdir(parents=True)
        (images / name / "environment.yaml").write_text(text)
    title = "Ours: {not} \"yaml\" # 'ü'"
    write_folder(
        tmp_path / "saved", saved({"name": "six", "version": "1"}, base="torch", title=title), images=images
    )
    told = load_environment(tmp_path / "saved" / "team" / "environment.yaml")
    assert (told.title, told.base, told.minimum_driver) == (title, "torch", "525.60")
    assert told.index == {"cpu": "https://example.org/b"}
    assert told.packages == ("python", "six", "allotment")
    write_folder(tmp_path / "saved", saved({"name": "six", "version": "2"}, base="torch"), images=images)
    assert pins((tmp_path / "saved" / "team" / "cpu.lock").read_text()) == ["six==2"]
    assert sorted(one.name for one in (tmp_path / "saved" / "team").iterdir()) == [
        "cpu.lock",
        "environment.yaml",
    ]
    drop_folder(tmp_path / "saved", "team")
    drop_folder(tmp_path / "saved", "team")
    assert list((tmp_path / "saved").iterdir()) == []


@pytest.mark.parametrize("version", ["1\n-r /etc/passwd", "1 --pre", "1 ; x", "$HOME", ""])
def test_a_broker_that_was_fooled_fools_no_build(version: str) -> None:
    with pytest.raises(ValidationError):
        saved({"name": "six", "version": version})
