"""Who runs the services: the choice of the account, what is handed to it, and what is never followed."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest
from allotment_hub.host import unix_account
from allotment_hub.host.checks import rights_finding
from allotment_hub.host.errors import HostError
from allotment_hub.host.files import private_folder, write_private
from allotment_hub.host.layout import lay_out
from allotment_hub.host.options import default_data_dir, parse_up
from allotment_hub.host.ownership import make_parents, settle
from allotment_hub.host.specs import ServiceSpec, account_env, needs_root, service_specs
from allotment_hub.host.unix_account import UnixAccount, find_account, socket_group, wanted_account
from allotment_hub.paths import Paths
from allotment_testing.decided import host_settings_of, runtime_of

ROOT = Path(__file__).resolve().parents[2]

NOBODY = find_account("nobody")
BEHIND_SUDO = {"SUDO_UID": str(NOBODY.uid), "SUDO_USER": "nobody"}


def uid(path: Path) -> int:
    return path.lstat().st_uid


def test_the_account_is_named_kept_or_behind_sudo() -> None:
    assert wanted_account("daemon", kept="bin", env=BEHIND_SUDO) == "daemon"
    assert wanted_account(None, kept="bin", env=BEHIND_SUDO) == "bin"
    assert wanted_account(None, kept=None, env=BEHIND_SUDO) == "nobody"
    for env in ({}, {"SUDO_UID": "0"}, {"SUDO_UID": "x"}, {"SUDO_UID": "4294967290"}):
        assert wanted_account(None, kept=None, env=env) is None
    assert unix_account.ordinary("root") is None


def test_without_root_there_is_nothing_to_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: NOBODY.uid)
    assert wanted_account(None, kept=None, env=BEHIND_SUDO) is None
    assert wanted_account("nobody", kept=None, env={}) is None
    with pytest.raises(HostError, match="Only root can run the services as daemon"):
        wanted_account("daemon", kept=None, env={})


def test_the_data_lies_in_the_home_of_the_account(tmp_path: Path) -> None:
    home = Path(find_account("daemon").home)
    assert default_data_dir({}, "daemon") == home / ".local" / "share" / "allotment"
    assert default_data_dir({"ALLOTMENT_DATA": str(tmp_path)}, "daemon") == tmp_path
    assert parse_up(["--user", "nobody", "--data-dir", str(tmp_path)], {}).user == "nobody"
    with pytest.raises(HostError, match="has no home for the data"):
        parse_up([], BEHIND_SUDO)
    with pytest.raises(HostError, match="no account 'nosuch'"):
        parse_up(["--user", "nosuch"], {})


def test_doctor_says_who_runs_the_services() -> None:
    as_root, as_nobody = rights_finding(None), rights_finding("nobody")
    assert as_root is not None
    assert as_nobody is not None
    assert (as_root.level, as_nobody.level) == ("warning", "ok")
    assert "--user NAME" in as_root.remedy
    assert "nobody" in as_nobody.what


def test_a_port_that_needs_root_keeps_only_the_proxy_root(tmp_path: Path) -> None:
    paths = Paths(data=tmp_path)
    first = int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text(encoding="ascii"))
    assert (needs_root(first - 1), needs_root(first)) == (first > 0, False)
    for port, proxy in ((first, NOBODY.uid), (first - 1, None if first else NOBODY.uid)):
        specs = {spec.name: spec for spec in made_specs(paths, port)}
        runs = {name: spec.run_as and spec.run_as.uid for name, spec in specs.items()}
        assert runs == {"proxy": proxy, "agent": None, "broker": NOBODY.uid, "hub": NOBODY.uid}
    groups = {name: spec.run_as and spec.run_as.groups for name, spec in specs.items()}
    assert (groups["broker"], groups["hub"]) == ((77,), (77,))
    assert specs["agent"].argv[-2:] == ("--group", NOBODY.group)


def made_specs(paths: Paths, port: int) -> list[ServiceSpec]:
    settings = host_settings_of(port=port, user="nobody", docker_group=77)
    runtime = runtime_of(agent_socket=str(paths.agent_socket))
    return service_specs(paths=paths, settings=settings, runtime=runtime, secrets={"proxy": "s"}, env={})


def test_nothing_of_roots_environment_leads_home() -> None:
    env = {"HOME": "/root", "XDG_RUNTIME_DIR": "/run/user/0", "SUDO_UID": "5", "PATH": "/bin", "LANG": "C"}
    made = account_env(env, NOBODY)
    assert made == {"PATH": "/bin", "LANG": "C", "HOME": NOBODY.home, "USER": "nobody", "LOGNAME": "nobody"}


def test_only_dockers_group_is_lent(tmp_path: Path) -> None:
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        os.chown(path, 0, 4321)
        path.chmod(0o660)
        assert socket_group(f"unix://{path}", NOBODY) == 4321
        path.chmod(0o666)
        assert socket_group(f"unix://{path}", NOBODY) is None
        for group, mode in ((0, 0o660), (4321, 0o600)):
            os.chown(path, 0, group)
            path.chmod(mode)
            with pytest.raises(HostError, match="open to root only"):
                socket_group(f"unix://{path}", NOBODY)
    os.chown(tmp_path, 0, 4321)
    assert socket_group(f"unix://{tmp_path}", NOBODY) is None


def test_a_link_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    paths, elsewhere = Paths(data=tmp_path / "d"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    lay_out(paths, defaults=ROOT / "deploy" / "config", account=NOBODY)
    paths.homes.rmdir()
    paths.homes.symlink_to(elsewhere)
    with pytest.raises(HostError, match="must be a folder, not a link"):
        lay_out(paths, defaults=ROOT / "deploy" / "config", account=NOBODY)
    assert uid(elsewhere) == 0


def test_a_folder_changes_hands_whole_but_no_link_is_followed(tmp_path: Path) -> None:
    folder, precious = tmp_path / "hub", tmp_path / "precious"
    (folder / "sub").mkdir(parents=True)
    precious.write_text("root's", encoding="utf-8")
    (folder / "sub" / "own").write_text("", encoding="utf-8")
    (folder / "soft").symlink_to(precious)
    (folder / "hard").hardlink_to(precious)
    settle(folder, uid=NOBODY.uid, gid=NOBODY.gid, mode=0o700)
    assert uid(folder / "sub" / "own") == uid(folder / "sub") == uid(folder) == NOBODY.uid
    assert uid(precious) == 0
    (folder / "later").write_text("", encoding="utf-8")
    settle(folder, uid=NOBODY.uid, gid=NOBODY.gid, mode=0o700)
    assert uid(folder / "later") == 0  # not walked again: homes can be large


def test_made_folders_are_those_of_the_home_that_they_are_in(tmp_path: Path) -> None:
    os.chown(tmp_path, NOBODY.uid, NOBODY.gid)
    make_parents(tmp_path / "a" / "b" / "data")
    assert uid(tmp_path / "a") == uid(tmp_path / "a" / "b") == NOBODY.uid
    assert not (tmp_path / "a" / "b" / "data").exists()


def test_what_root_writes_belongs_to_the_folders_owner(tmp_path: Path) -> None:
    private_folder(tmp_path / "s")
    os.chown(tmp_path / "s", NOBODY.uid, NOBODY.gid)
    write_private(tmp_path / "s" / "proxy", "x\n")
    found = (tmp_path / "s" / "proxy").stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (NOBODY.uid, NOBODY.gid, 0o600)


def test_a_group_without_a_name_is_refused() -> None:
    with pytest.raises(HostError, match="has no name"):
        _ = UnixAccount(name="x", uid=54321, gid=54321, home="/").group
