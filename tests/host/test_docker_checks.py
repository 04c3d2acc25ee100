"""What doctor says of a Docker engine and NVIDIA's toolkit, from what they report."""

from __future__ import annotations

from pathlib import Path

import pytest
from allotment_hub.commands.doctor import examine
from allotment_hub.host.checks import Finding
from allotment_hub.host.docker_checks import UNPRIVILEGED, firewall_findings, judge_engine, judge_toolkit
from allotment_hub.paths import Paths

GOOD = {"LiveRestoreEnabled": True, "CgroupDriver": "systemd", "CgroupVersion": "2"}


def levels(findings: list[Finding]) -> dict[str, str]:
    return {finding.name: finding.level for finding in findings}


def test_a_good_engine() -> None:
    assert set(levels(judge_engine(GOOD, "27.0")).values()) == {"ok"}


def test_every_finding_that_is_not_fine_has_a_remedy() -> None:
    bad = {"LiveRestoreEnabled": False, "CgroupDriver": "none", "MemoryLimit": False, "PidsLimit": False}
    found = (
        judge_engine(bad, "20.10") + judge_toolkit(None, "", "runc") + judge_toolkit("1.14.3", "", "nvidia")
    )
    found += firewall_findings(["iptables -N X"], applied=False)
    assert all(finding.remedy for finding in found if finding.level != "ok")
    assert levels(found)["live-restore"] == "warning"
    assert levels(found)["cgroups"] == "error"


@pytest.mark.parametrize(
    ("version", "config", "runtime", "expected"),
    [
        ("1.20.1", f"{UNPRIVILEGED} = false\n", "runc", {"toolkit": "ok", "unprivileged": "ok"}),
        ("1.20.1", "", "runc", {"toolkit": "ok", "unprivileged": "error"}),
        ("1.20.1", "not [toml", "runc", {"toolkit": "ok", "unprivileged": "error"}),
        ("1.19.0", f"{UNPRIVILEGED} = false\n", "runc", {"toolkit": "warning", "unprivileged": "ok"}),
        (
            "2.0",
            f"{UNPRIVILEGED} = false\n",
            "nvidia",
            {"toolkit": "ok", "unprivileged": "ok", "runtime": "error"},
        ),
        (None, "", "runc", {"toolkit": "error"}),
    ],
)
def test_toolkit(version: str | None, config: str, runtime: str, expected: dict[str, str]) -> None:
    assert levels(judge_toolkit(version, config, runtime)) == expected


def test_the_firewall_commands_are_shown_exactly() -> None:
    [finding] = firewall_findings(["iptables -N X", "iptables -A X -j REJECT"], applied=None)
    assert finding.remedy.endswith("iptables -N X\n    iptables -A X -j REJECT")
    assert levels(firewall_findings([], applied=True)) == {"firewall": "ok"}


def test_doctor_works_before_anything_was_started(tmp_path: Path) -> None:
    found = levels(examine(Paths(data=tmp_path / "new")))
    assert found["data"] == "ok"
    assert found["services"] == "warning"
    assert not (tmp_path / "new").exists()
