"""`allot images` where there are no images, no Docker, or no installation; its lists and bars."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from allotment.cli import build_app
from allotment_hub.broker.services.requirements import version_of
from allotment_hub.commands.image_making import Bars
from allotment_hub.runtime import Runtime
from allotment_spawner.engines.docker_pull import PullProgress
from rich.console import Console
from typer.testing import CliRunner, Result


def data_dir(folder: Path, *, engine: str) -> Path:
    """An installation that was started once; nothing of it runs."""
    runtime = Runtime.model_validate(
        {
            "installation": "0123abcd", "engine": engine, "gpus": "none", "public_url": "", "hub_api_url": "",
            "broker_host": "", "broker_port": 1, "broker_url_for_workloads": "",
            "hub_api_url_for_workloads": "", "proxy_api_url": "", "agent_socket": "", "environments": {},
        }
    )  # fmt: skip
    (folder / "run").mkdir(parents=True)
    (folder / "run" / "runtime.json").write_text(runtime.model_dump_json())
    (folder / "config").mkdir()
    (folder / "config" / "site.yaml").write_text(f"docker: {{socket: 'unix://{folder}/no.sock'}}\n")
    connection = {"broker_url": "http://127.0.0.1:1/services/allotment/", "admin_token": "t", "hub_url": "x"}
    (folder / "connection.json").write_text(json.dumps(connection))
    return folder


def allot(*argv: str) -> Result:
    return CliRunner().invoke(build_app(), ["images", *argv])


@pytest.mark.parametrize("argv", [("gc",), ("warm",), ("pull", "127.0.0.1:1/x:1"), ("build", "minimal")])
def test_without_docker_it_says_so(tmp_path: Path, argv: tuple[str, ...]) -> None:
    said = allot(*argv, "--data-dir", str(data_dir(tmp_path, engine="local")))
    assert said.exit_code == 2
    assert "run without images" in " ".join(said.output.split())


@pytest.mark.parametrize("argv", [("gc",), ("pull", "127.0.0.1:1/x:1")])
def test_a_docker_that_is_away_is_named(tmp_path: Path, argv: tuple[str, ...]) -> None:
    said = allot(*argv, "--data-dir", str(data_dir(tmp_path, engine="docker")))
    assert said.exit_code == 2
    assert said.exception is None or isinstance(said.exception, SystemExit)


def test_without_a_broker_it_says_so(tmp_path: Path) -> None:
    said = allot("list", "--data-dir", str(data_dir(tmp_path, engine="docker")))
    assert said.exit_code == 2
    assert "Nothing answers" in said.output


def test_a_build_needs_a_name_before_options(tmp_path: Path) -> None:
    said = allot("build", "--variant", "cpu", "--data-dir", str(data_dir(tmp_path, engine="docker")))
    assert said.exit_code == 1
    assert "Name an environment first" in said.output


@pytest.mark.parametrize("version", ["", "abc", "x" * 12, "a" * 65, "../../leases", "sha256:zz"])
def test_what_is_no_version_is_not_sent(tmp_path: Path, version: str) -> None:
    said = allot("pin", version, "--data-dir", str(data_dir(tmp_path, engine="docker")))
    assert said.exit_code == 1
    assert "is no version" in said.output
    assert version_of(version) is None


@pytest.mark.parametrize("terminal", [True, False])
def test_bytes_are_shown_with_and_without_a_terminal(terminal: bool) -> None:
    out = io.StringIO()
    progress = PullProgress()
    with Bars(Console(file=out, force_terminal=terminal, width=100)) as bars:
        for got in range(0, 20_000_001, 2_000_000):
            detail = {"current": got, "total": 20_000_000}
            progress.feed({"id": "layer1", "status": "Downloading", "progressDetail": detail})
            bars.show(progress)
    shown = out.getvalue()
    if terminal:
        assert "all layers" in shown
        assert "layer1 downloading" in shown
        assert "20.0/20.0" in shown
    else:
        assert shown.splitlines()[0] == "0 bytes of 20.0 MB"
        assert shown.splitlines()[-1] == "20.0 MB of 20.0 MB"
