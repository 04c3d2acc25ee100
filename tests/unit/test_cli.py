"""What `allot` prints and how it ends, against the broker's real HTTP layer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer
from allotment.cli import build_app
from allotment.console import screen, since
from allotment_testing.canned_broker import OPERATOR, PERSON, serve_canned_broker
from rich.table import Table
from typer.testing import CliRunner, Result

HUB_TOKEN = "token-of-a-plain-hub"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve_canned_broker() as url:
        yield url


@pytest.fixture(scope="module")
def app() -> typer.Typer:
    return build_app()


class Allot:
    """Runs `allot` with exactly these environment variables about Allotment."""

    def __init__(self, app: typer.Typer, home: Path) -> None:
        self.app = app
        self.home = home

    def __call__(self, *arguments: str, **environment: str) -> Result:
        unset = {
            "ALLOTMENT_URL",
            "ALLOTMENT_TOKEN",
            "ALLOTMENT_DATA",
            "JUPYTERHUB_API_TOKEN",
            "XDG_DATA_HOME",
        }
        variables: dict[str, str | None] = dict.fromkeys(unset) | {"HOME": str(self.home), "COLUMNS": "160"}
        return CliRunner().invoke(self.app, list(arguments), env=variables | environment)


@pytest.fixture
def allot(app: typer.Typer, tmp_path: Path) -> Allot:
    return Allot(app, tmp_path)


def test_status_shows_services_and_sessions_to_operators(allot: Allot, url: str) -> None:
    done = allot("status", ALLOTMENT_URL=url, ALLOTMENT_TOKEN=OPERATOR)
    assert done.exit_code == 0, done.output
    for part in ("JupyterHub 6.1.1", "simulated", "local", "lease-runs", "1g.10gb at 0", "queued, place 2"):
        assert part in done.output
    assert "Xid 79 was seen" in done.output
    assert "12.0 GiB free at /srv/allotment; scratch is limited by xfs" in done.output


def test_status_tells_people_what_is_simulated(allot: Allot, url: str) -> None:
    done = allot("status", ALLOTMENT_URL=url, ALLOTMENT_TOKEN=PERSON)
    assert done.exit_code == 0, done.output
    assert "simulated" in done.output
    assert "Xid 79" not in done.output


def test_status_for_scripts(allot: Allot, url: str) -> None:
    done = allot("status", "--json", ALLOTMENT_URL=url, ALLOTMENT_TOKEN=OPERATOR)
    document = json.loads(done.stdout)
    assert document["simulated"] is True
    assert {service["name"]: service["ok"] for service in document["services"]} == dict.fromkeys(
        ("hub", "broker", "agent", "engine", "disk"), True
    )
    assert [item["id"] for item in document["sessions"]] == ["lease-waits", "lease-runs"]


def test_status_of_a_starting_broker_is_exit_1(allot: Allot) -> None:
    with serve_canned_broker(ready=False) as url:
        done = allot("status", ALLOTMENT_URL=url, ALLOTMENT_TOKEN=OPERATOR)
    assert done.exit_code == 1
    assert "starting" in done.output


def test_gpus_draws_every_slice_for_operators(allot: Allot, url: str) -> None:
    done = allot("gpus", ALLOTMENT_URL=url, ALLOTMENT_TOKEN=OPERATOR)
    assert done.exit_code == 0, done.output
    assert "|█████████|·········|·········|·········|░░" in done.output
    assert "ann" in done.output
    assert "ben" in done.output
    assert "process 4242 (python) belongs to no lease" in done.output
    assert "allotment-x-y" in done.output
    assert "These GPUs are simulated" in done.output


def test_gpus_shows_people_what_they_can_have_and_no_names(allot: Allot, url: str) -> None:
    done = allot("gpus", ALLOTMENT_URL=url, ALLOTMENT_TOKEN=PERSON)
    assert done.exit_code == 0, done.output
    assert "gpu-10gb" in done.output
    assert "This machine has no two whole cards." in done.output
    [cpu] = [line.split() for line in done.output.splitlines() if line.startswith("cpu")]
    assert cpu[-4:] == ["0.025", "credits", "0.01", "lacks."], "what it costs this person now, and why not"
    assert "ben" not in done.output


def test_leases_shows_live_ones_and_with_all_the_rest(allot: Allot, url: str) -> None:
    live = allot("leases", ALLOTMENT_URL=url, ALLOTMENT_TOKEN=PERSON)
    every = allot("leases", "--all", ALLOTMENT_URL=url, ALLOTMENT_TOKEN=PERSON)
    assert "lease-over" not in live.output
    costs = {line.split()[0]: line.split()[-2:] for line in live.output.splitlines() if line}
    assert costs["lease-runs"] == ["0.12667", "credits"]
    assert costs["lease-waits"] == ["0.40", "-"], "not known is a dash"
    assert "ended (stopped)" in every.output


def test_leases_for_scripts_are_the_contract(allot: Allot, url: str) -> None:
    done = allot("leases", "--json", ALLOTMENT_URL=url, ALLOTMENT_TOKEN=PERSON)
    first = json.loads(done.stdout)[1]
    assert first["price_per_hour"] == "0.40"
    assert first["class"] == "interactive"
    assert first["granted_at"] == "2026-11-02T12:00:00Z"
    assert first["devices"][0]["placement"] == [0, 1]


def test_explain_says_rule_device_and_help(allot: Allot, url: str) -> None:
    done = allot("explain", "lease-waits", ALLOTMENT_URL=url, ALLOTMENT_TOKEN=PERSON)
    assert done.exit_code == 0, done.output
    for part in ("rule no_room", "another person", "Choose CPU only to start now."):
        assert part in done.output


def test_a_refusal_is_one_sentence_and_exit_1(allot: Allot, url: str) -> None:
    done = allot("explain", "unknown", ALLOTMENT_URL=url, ALLOTMENT_TOKEN=PERSON)
    assert done.exit_code == 1
    assert "Traceback" not in done.output
    assert done.stdout == ""


def test_nothing_listening_is_exit_2(allot: Allot) -> None:
    done = allot("status", ALLOTMENT_URL="http://127.0.0.1:9/services/allotment/", ALLOTMENT_TOKEN=PERSON)
    assert done.exit_code == 2
    assert "Nothing answers" in done.stderr


@pytest.mark.parametrize("command", [["status"], ["gpus"], ["leases"], ["explain", "x"]])
def test_outside_any_installation_it_says_so(allot: Allot, command: list[str]) -> None:
    done = allot(*command)
    assert done.exit_code == 2
    assert "There is no Allotment here" in done.stderr


def test_under_another_hub_it_says_so(allot: Allot) -> None:
    done = allot("status", JUPYTERHUB_API_TOKEN=HUB_TOKEN)
    assert done.exit_code == 2
    assert "does not use Allotment" in done.stderr
    assert HUB_TOKEN not in done.output


def test_inside_a_session_the_servers_own_token_serves(allot: Allot, url: str) -> None:
    done = allot("leases", ALLOTMENT_URL=url, JUPYTERHUB_API_TOKEN=PERSON)
    assert done.exit_code == 0, done.output


def test_an_installation_here_is_found_by_its_connection_file(allot: Allot, url: str, tmp_path: Path) -> None:
    data = tmp_path / "elsewhere"
    data.mkdir()
    hub_url = url.removesuffix("services/allotment/")
    document = {"broker_url": url, "hub_url": hub_url, "admin_token": OPERATOR}
    (data / "connection.json").write_text(json.dumps(document))
    for done in (
        allot("status", "--data-dir", str(data)),
        allot("status", ALLOTMENT_DATA=str(data)),
        allot("status", "--data-dir", str(data), ALLOTMENT_URL="http://127.0.0.1:9/", ALLOTMENT_TOKEN="x"),
    ):
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_broken_connection_file_is_one_sentence(allot: Allot, tmp_path: Path, text: str) -> None:
    (tmp_path / "connection.json").write_text(text)
    done = allot("status", "--data-dir", str(tmp_path))
    assert done.exit_code == 2
    assert "cannot be used" in done.stderr


def test_version_names_the_three_parts(allot: Allot) -> None:
    done = allot("version", "--json")
    assert set(json.loads(done.stdout)) == {"allotment", "allotment-hub", "allotment-spawner"}


@pytest.mark.parametrize("arguments", [["nonsense"], ["explain"], ["leases", "--limit", "0"]])
def test_wrong_use_is_exit_2(allot: Allot, arguments: list[str]) -> None:
    assert allot(*arguments).exit_code == 2


def test_no_name_commands_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("Server")
    table.add_row("a\x9b31mb\x1b]0;x\x07[red]c")
    screen().print("\u202etxt.exe [bold]:warning:")
    screen().print(table)
    shown = capsys.readouterr().out
    assert "\N{REPLACEMENT CHARACTER}txt.exe [bold]:warning:" in shown
    assert (
        "a\N{REPLACEMENT CHARACTER}31mb\N{REPLACEMENT CHARACTER}]0;x\N{REPLACEMENT CHARACTER}[red]c" in shown
    )


def test_a_time_is_local_and_names_its_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert since(datetime(2026, 7, 1, 22, 30, tzinfo=UTC)) == "02 Jul 00:30 CEST"
        assert since(None) == "-"
    finally:
        monkeypatch.undo()
        time.tzset()
