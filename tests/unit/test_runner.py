"""The test runner counts honestly: a skipped test is a failed one, a crash is a failure."""

from __future__ import annotations

from pathlib import Path

import pytest
from allotment_runner import environment, layers, main, places, system

REPORT = """<testsuites><testsuite>
<testcase name="a"/><testcase name="b"><failure/></testcase>
<testcase name="c"><error/></testcase><testcase name="d"><skipped/></testcase>
</testsuite></testsuites>"""


def test_skipped_counts_as_failed(tmp_path: Path) -> None:
    report = tmp_path / "unit.xml"
    report.write_text(REPORT)
    assert layers.read_counts(report) == (1, 3)


def test_no_report_is_no_pass(tmp_path: Path) -> None:
    assert layers.read_counts(tmp_path / "missing.xml") == (0, 0)


def test_the_last_line_is_the_total(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = [layers.Outcome("unit", 3, 0, 1.0), layers.Outcome("hub", 2, 1, 70.0)]
    assert main.total(outcomes, 71.0) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "5 passed, 1 failed"


def test_an_unknown_layer_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["nonsense"], usage="") == 2
    assert "There is no layer nonsense" in capsys.readouterr().err


def test_every_layer_stands_in_one_group() -> None:
    assert len(places.LAYERS) == len(set(places.LAYERS))


def test_every_need_is_a_known_package() -> None:
    assert {package for needs in system.NEEDS.values() for package in needs} <= set(system.PACKAGES)


def test_without_root_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setitem(system.PACKAGES, "chromium", lambda: False)
    with pytest.raises(SystemExit, match="sudo apt-get install --no-install-recommends chromium"):
        system.ensure_packages(["e2e"])


def test_without_root_the_layers_without_an_engine_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(SystemExit, match="need root") as refused:
        environment.ensure_images()
    named = str(refused.value).rpartition("./tests/run ")[2].split()
    assert {"house", "unit", "hub"} <= set(named)
    assert system.need_engine(named) is False
    assert all(system.need_engine([name]) for name in ("contract", "docker", "recovery", "e2e"))


def test_what_is_copied_into_the_environment_makes_it_anew() -> None:
    """JupyterLab reads a copy of the extension's files, which an editable install does not follow."""
    copied = places.ROOT / "extensions" / "allotment" / "labextension"
    assert {path for path in copied.rglob("*") if path.is_file()} <= set(environment.venv_inputs())
