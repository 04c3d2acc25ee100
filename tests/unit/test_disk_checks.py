"""What `allot doctor` says of disks and of what limits scratch and homes."""

from __future__ import annotations

from pathlib import Path

from allotment_hub.host.disk_checks import floor_findings, root_findings
from allotment_hub.paths import Paths
from allotment_hub.site import DiskSettings, Site
from allotment_spawner.core.errors import AgentUnavailable
from allotment_spawner.disk.base import RootState


def test_room_above_and_below_the_floor(tmp_path: Path) -> None:
    [fine] = floor_findings(Site(disk=DiskSettings(floor_gib=0)), Paths(tmp_path), None)
    assert fine.level == "ok"
    [low] = floor_findings(Site(disk=DiskSettings(floor_gib=1_000_000)), Paths(tmp_path), None)
    assert low.level == "error"
    assert "Nothing new is started" in low.what
    assert "floor_gib" in low.remedy


def test_what_limits_scratch() -> None:
    [fine] = root_findings("scratch", RootState("/fast", "xfs", None, 0))
    [loose] = root_findings("scratch", RootState("/fast", "btrfs", "Use simple quotas.", 0))
    [none] = root_findings("homes", RootState("/srv/homes", "none", "/srv is ext4.", 0))
    refused = AgentUnavailable("The folder /fast holds other files already.", "Name another one.")
    [broken] = root_findings("scratch", refused)
    assert [one.level for one in (fine, loose, none, broken)] == ["ok", "warning", "warning", "error"]
    assert loose.remedy == "Use simple quotas."
    assert "measured, not limited: /srv is ext4." in none.what
    assert "without scratch space: The folder /fast holds" in broken.what
    assert root_findings("scratch", None) == []
