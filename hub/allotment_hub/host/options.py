"""Command-line options of `up` and `down`, with the standard library only: read before the installation."""

from __future__ import annotations

import argparse
import ipaddress
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from allotment_hub.host.errors import HostError
from allotment_hub.host.unix_account import find_account, sudo_name

__all__ = ["DownOptions", "UpOptions", "default_data_dir", "parse_down", "parse_up"]


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What `up` was asked for. `gpus` is "auto", "none" or "sim:…"."""

    data_dir: Path
    port: int = 8000
    bind: str = "127.0.0.1"
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure_bind: bool = False
    engine: str = "auto"
    gpus: str = "auto"
    detach: bool = False
    yes: bool = False
    trust_users: bool = False
    user: str | None = None

    @property
    def loopback(self) -> bool:
        return ipaddress.ip_address(self.bind).is_loopback


@dataclass(frozen=True, slots=True)
class DownOptions:
    data_dir: Path
    keep_sessions: bool = False
    purge: bool = False
    yes: bool = False


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise HostError(f"{message[:1].upper()}{message[1:]}; {self.prog} --help lists the options.")


def default_data_dir(env: Mapping[str, str], user: str | None = None) -> Path:
    """`$XDG_DATA_HOME/allotment`, else `~/.local/share/allotment`; `$ALLOTMENT_DATA` names another one.

    As root it is the home of the account that the services are to run as: of `user`, or behind sudo.
    """
    if env.get("ALLOTMENT_DATA"):
        return Path(env["ALLOTMENT_DATA"]).expanduser().absolute()
    base = env.get("XDG_DATA_HOME")
    name = (user or sudo_name(env)) if os.geteuid() == 0 else None
    home = Path(find_account(name).home) if name else Path.home()
    if name and not base and not home.is_dir():
        raise HostError(f"The account {name} has no home for the data; name a folder with --data-dir.")
    return (Path(base) if base else home / ".local" / "share").absolute() / "allotment"


def _up_parser() -> _Parser:
    parser = _Parser(prog="./deploy/up", description="Start Allotment on this machine.", allow_abbrev=False)
    parser.add_argument("--port", type=int, default=8000, help="where browsers reach it (8000)")
    parser.add_argument("--bind", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    parser.add_argument("--tls-cert", type=Path, metavar="F", help="certificate chain, PEM")
    parser.add_argument("--tls-key", type=Path, metavar="F", help="its private key, PEM")
    parser.add_argument(
        "--insecure-bind",
        action="store_true",
        help="listen beyond this machine without TLS (passwords in clear)",
    )
    parser.add_argument("--data-dir", type=Path, metavar="D", help="default: $XDG_DATA_HOME/allotment")
    parser.add_argument("--engine", choices=("auto", "docker", "local"), default="auto")
    parser.add_argument("--gpus", default="auto", metavar="auto|none|sim:…", help="e.g. sim:2xA100-80GB:mig")
    parser.add_argument("--detach", action="store_true", help="return once it is ready")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument(
        "--trust-users",
        action="store_true",
        help="local engine: let every account start sessions as this Unix user",
    )
    parser.add_argument(
        "--user",
        metavar="NAME",
        help="as root: the account of proxy, broker and hub (the one behind sudo; else root)",
    )
    return parser


def parse_up(argv: Sequence[str], env: Mapping[str, str] = os.environ) -> UpOptions:
    """Raises `HostError` for anything that cannot be meant."""
    found = _up_parser().parse_args(list(argv))
    options = UpOptions(
        data_dir=_data_dir(found.data_dir, env, found.user),
        port=found.port,
        bind=found.bind,
        tls_cert=found.tls_cert and found.tls_cert.absolute(),
        tls_key=found.tls_key and found.tls_key.absolute(),
        insecure_bind=found.insecure_bind,
        engine=found.engine,
        gpus=found.gpus,
        detach=found.detach,
        yes=found.yes,
        trust_users=found.trust_users,
        user=found.user,
    )
    _check(options)
    return options


def parse_down(argv: Sequence[str], env: Mapping[str, str] = os.environ) -> DownOptions:
    parser = _Parser(prog="./deploy/down", description="Stop Allotment on this machine.", allow_abbrev=False)
    parser.add_argument("--keep-sessions", action="store_true", help="leave notebook servers running")
    parser.add_argument(
        "--purge",
        action="store_true",
        help="also remove all data: accounts, books, homes, containers, volumes",
    )
    parser.add_argument("--data-dir", type=Path, metavar="D", help="default: $XDG_DATA_HOME/allotment")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    found = parser.parse_args(list(argv))
    if found.purge and found.keep_sessions:
        raise HostError("--purge and --keep-sessions do not go together: purged sessions would have no home.")
    return DownOptions(
        data_dir=_data_dir(found.data_dir, env),
        keep_sessions=found.keep_sessions,
        purge=found.purge,
        yes=found.yes,
    )


def _data_dir(given: Path | None, env: Mapping[str, str], user: str | None = None) -> Path:
    return given.expanduser().absolute() if given is not None else default_data_dir(env, user)


def _check(options: UpOptions) -> None:
    if not 1 <= options.port <= 65535:
        raise HostError(f"--port must be between 1 and 65535, not {options.port}.")
    try:
        loopback = options.loopback
    except ValueError:
        raise HostError(f"--bind must be an IP address such as 0.0.0.0, not {options.bind!r}.") from None
    if (options.tls_cert is None) != (options.tls_key is None):
        raise HostError("--tls-cert and --tls-key belong together; give both or neither.")
    for path in (options.tls_cert, options.tls_key):
        if path is not None and not (path.is_file() and os.access(path, os.R_OK)):
            raise HostError(f"{path} cannot be read; --tls-cert and --tls-key name PEM files.")
    if options.gpus not in {"auto", "none"} and not options.gpus.startswith("sim:"):
        raise HostError(f"--gpus is auto, none or sim:… (such as sim:2xA100-80GB:mig), not {options.gpus!r}.")
    if not loopback:
        _check_beyond_loopback(options)


def _check_beyond_loopback(options: UpOptions) -> None:
    if options.tls_cert is None and not options.insecure_bind:
        raise HostError(
            f"Listening on {options.bind} without TLS would send passwords in clear; "
            "give --tls-cert and --tls-key, or --insecure-bind if the network is safe."
        )
    if options.engine == "local":
        raise HostError(
            f"The local engine has no walls between people, so it stays on 127.0.0.1; "
            f"to listen on {options.bind} use --engine docker."
        )
