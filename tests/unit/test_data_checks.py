"""What `allot doctor` says of mounts and the cache of datasets."""

from __future__ import annotations

from pathlib import Path

from allotment_hub.host.data_checks import data_findings
from allotment_hub.paths import Paths
from allotment_hub.site import DatasetSettings, Mount, Site


def test_each_mount_and_the_cache(tmp_path: Path) -> None:
    (tmp_path / "course").mkdir()
    site = Site(
        mounts=(
            Mount(name="course", path=str(tmp_path / "course")),
            Mount(name="gone", path=str(tmp_path / "gone")),
        ),
        datasets=DatasetSettings(cache=str(tmp_path / "fast")),
    )
    found = {finding.name: finding for finding in data_findings(site, Paths(tmp_path / "data"))}
    assert {name: finding.level for name, finding in found.items()} == {
        "mount course": "ok",
        "mount gone": "error",
        "datasets": "error",
    }
    assert str(tmp_path / "gone") in found["mount gone"].what
    assert all(finding.remedy for finding in found.values() if finding.level == "error")
    (tmp_path / "fast").mkdir()
    assert data_findings(site, Paths(tmp_path / "data"))[-1].level == "ok"


def test_nothing_is_said_of_what_is_not_configured(tmp_path: Path) -> None:
    assert data_findings(Site(), Paths(tmp_path)) == []
