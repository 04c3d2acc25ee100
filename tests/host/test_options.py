"""Options of `up` and `down`: what they mean and what is refused, in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from allotment_hub.host.errors import HostError
from allotment_hub.host.options import default_data_dir, parse_down, parse_up


def test_defaults() -> None:
    options = parse_up([], {"XDG_DATA_HOME": "/x"})
    assert (options.port, options.bind, options.engine, options.gpus) == (8000, "127.0.0.1", "auto", "auto")
    assert options.data_dir == Path("/x/allotment")


def test_data_dir_without_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/jo")
    assert default_data_dir({}) == Path("/home/jo/.local/share/allotment")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--port", "0"], "between 1 and 65535"),
        (["--port", "x"], "invalid int value"),
        (["--bind", "example.org"], "must be an IP address"),
        (["--bind", "0.0.0.0"], "--insecure-bind"),
        (["--bind", "0.0.0.0", "--insecure-bind", "--engine", "local"], "no walls between people"),
        (["--tls-cert", "/etc/hostname"], "belong together"),
        (["--tls-cert", "/nowhere", "--tls-key", "/nowhere"], "cannot be read"),
        (["--gpus", "4"], "auto, none or sim:"),
        (["--engine", "podman"], "invalid choice"),
        (["--prot", "1"], "nrecognized arguments"),
    ],
)
def test_refused(argv: list[str], words: str) -> None:
    with pytest.raises(HostError, match=words) as error:
        parse_up(argv, {})
    assert "\n" not in str(error.value)


def test_beyond_loopback_with_docker() -> None:
    options = parse_up(["--bind", "0.0.0.0", "--insecure-bind"], {})
    assert not options.loopback


def test_purge_and_keep_sessions_contradict() -> None:
    with pytest.raises(HostError, match="do not go together"):
        parse_down(["--purge", "--keep-sessions"], {})
