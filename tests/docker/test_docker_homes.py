"""Homes as folders of another account, on a real engine: made, measured, filled to the brim, given up."""

from __future__ import annotations

import contextlib
import grp
import pwd
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from allotment.cli import build_app
from allotment_hub.host.probes import Answer, request
from allotment_spawner.engines.docker_homes import DockerHomeGauge
from allotment_spawner.engines.home_gauge import HomeUsage
from allotment_spawner.engines.owners import Account, OwnerRule
from allotment_spawner.launch.container import Owner, container_options, home_mount
from allotment_spawner.spawners.homes import Home, settle_home
from allotment_testing.docker_daemon import DockerDaemon
from allotment_testing.docker_images import image_tag
from allotment_testing.engine_makers import a_launch
from allotment_testing.homes_box import INSTALLATION, HomesBox
from allotment_testing.installation import Installation
from allotment_testing.loop_disk import fill, loop_disk
from allotment_testing.notebook import Notebook
from allotment_testing.other_account import person_account
from allotment_testing.recovery_checks import Session
from allotment_testing.terminal import type_in_terminal
from allotment_testing.workloads import Containers, prepared_installation
from typer.testing import CliRunner

OTHER = Owner(uid=2001, gid=2002, groups=(4000,))
TEXT = {"cell_type": "raw", "id": "a", "metadata": {}, "source": "x" * 500_000}
NOTEBOOK = {"cells": [TEXT], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


@dataclass
class Place:
    """An installation whose homes lie on a small disk of their own."""

    installation: Installation
    disk: Path
    person: pwd.struct_passwd
    team: grp.struct_group

    @property
    def home(self) -> Path:
        return self.disk / "homes" / self.person.pw_name


@pytest.fixture(scope="module")
def place(daemon: DockerDaemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(loop_disk(tmp_path_factory.mktemp("disk"), "ext4", mib=64))
        name, group = stack.enter_context(person_account())
        made = prepared_installation(daemon)
        stack.callback(made.close)
        made.paths.site.write_text(
            f"docker: {{socket: '{daemon.base_url}', request_devices: nvidia, "
            f"home: '{disk}/homes/{{username}}'}}\n"
            "homes: {owner: nss, quota_gib: 0.02}\n"
            "disk: {floor_gib: 0}\n"
        )
        made.up()
        assert made.hub("POST", f"/users/{name}").status == 201
        yield Place(made, disk, pwd.getpwnam(name), grp.getgrnam(group))


@pytest.fixture
def session(place: Place, engine: Any) -> Session:
    containers = Containers(client=engine, installation=place.installation)
    return Session(installation=place.installation, user=place.person.pw_name, workloads=containers)


def put(session: Session, path: str, body: dict[str, Any]) -> Answer:
    return request(f"{session.url}{path}", method="PUT", token=session.token, body=body, timeout_s=30)


def save(session: Session, name: str) -> Answer:
    body = {"type": "notebook", "format": "json", "content": NOTEBOOK}
    return put(session, f"api/contents/{name}", body)


def test_a_home_is_made_for_its_owner_and_measured(place: Place, session: Session) -> None:
    session.start("cpu")
    seen, person = place.home.stat(), place.person
    assert (seen.st_uid, seen.st_gid, seen.st_mode & 0o7777) == (person.pw_uid, person.pw_gid, 0o700)
    notebook = Notebook(url=session.url, token=session.token)
    code = "import getpass, os, pathlib; p = pathlib.Path.home() / 'big'; p.write_bytes(b'x' * 25_000_000)\n"
    code += "import pwd; print(pwd.getpwuid(os.getuid()).pw_name, os.getuid(), os.getgid(), os.getgroups())\n"
    code += "print(oct(p.stat().st_mode & 0o777))"
    told = notebook.run(notebook.start_kernel(), code).split("\n")
    numbers = f"{person.pw_uid} {person.pw_gid} {sorted([person.pw_gid, place.team.gr_gid])}"
    assert told[:2] == [f"{person.pw_name} {numbers}", "0o664"]
    home = place.installation.broker(f"homes/{person.pw_name}/measure", method="POST").json()
    assert home["used_bytes"] >= 25_000_000
    assert "is full (0.0 of 0.0 GiB)" in home["warning"]
    assert home["enforced"] is False
    session.stop()


def test_on_a_full_home_a_session_starts_says_so_and_can_clean(place: Place, session: Session) -> None:
    """The home itself was used before, so what is there must still be read, and what is new goes aside."""
    fill(place.disk)
    session.start("cpu")
    assert request(f"{session.url}lab", token=session.token, timeout_s=30).ok
    notebook = Notebook(url=session.url, token=session.token)
    kernel = notebook.start_kernel()
    assert "delete files" in notebook.run(kernel, "import os; print(os.environ['ALLOTMENT_HOME_FULL'])")
    history = "get_ipython().history_manager.writeout_cache(); print('history kept')"
    assert notebook.run(kernel, history) == "history kept\n"
    workspace = {"data": {}, "metadata": {"id": "default"}}
    assert put(session, "lab/api/workspaces/default", workspace).ok
    assert save(session, "kept.ipynb").status == 500
    told = request(f"{session.url}allotment/session", token=session.token, timeout_s=30).json()
    assert "Your home is full" in told["home"]["warning"]
    type_in_terminal(session.url, session.token, "rm ~/big")
    assert not (place.home / "big").exists()
    assert save(session, "kept.ipynb").ok
    session.stop()
    (place.disk / "filler").unlink()


@pytest.mark.parametrize(
    ("name", "sentence"), [("daemon", "account of the system itself"), ("demo", "knows no account")]
)
def test_who_is_nobody_here_starts_nothing(place: Place, name: str, sentence: str) -> None:
    if name != "demo":
        assert place.installation.hub("POST", f"/users/{name}").status == 201
    options = {"user_options": {"environment": "minimal", "flavor": "cpu"}}
    answer = place.installation.hub("POST", f"/users/{name}/server", options)
    assert answer.status == 422
    assert sentence in answer.body.decode()
    assert not (place.disk / "homes" / name).exists()


def test_who_leaves_is_packed_and_gone(place: Place, session: Session) -> None:
    """While the session runs: it ends first. The archive is the only thing that stays."""
    session.start("cpu")
    name = place.person.pw_name
    words = ["people", "offboard", name, "--data-dir", str(place.installation.data)]
    refused = CliRunner().invoke(build_app(), [*words, "--erase", "--archive"])
    assert refused.exit_code == 2
    done = CliRunner().invoke(build_app(), [*words, "--archive", "--yes"])
    assert done.exit_code == 0, done.output
    assert f"The home of {name} was removed." in done.output
    assert (session.refs(), place.home.exists()) == ([], False)
    [archive] = place.installation.paths.archive.iterdir()
    with tarfile.open(archive) as tar:
        member = tar.getmember("./kept.ipynb")
    assert (member.uid, member.gid) == (place.person.pw_uid, place.person.pw_gid)
    homes = place.installation.broker(f"homes?user={name}").json()
    assert [(one["state"], one["used_bytes"]) for one in homes] == [("archived", None)]
    assert CliRunner().invoke(build_app(), [*words, "--yes"]).exit_code == 2


@pytest.fixture
def box(engine: Any, daemon: DockerDaemon, tmp_path: Path) -> HomesBox:
    image = str(engine.inspect_image(image_tag("minimal"))["Id"])
    return HomesBox(client=engine, base_url=daemon.base_url, image=image, folder=tmp_path, owner=OTHER)


def gauge(daemon: DockerDaemon, owner: Owner = OTHER, limit_s: float = 60) -> DockerHomeGauge:
    return DockerHomeGauge(
        installation=INSTALLATION,
        base_url=daemon.base_url,
        template="volume",
        rule=OwnerRule(fixed=owner),
        limit_s=limit_s,
    )


async def test_a_volume_of_another_account_and_its_name_inside(
    engine: Any, daemon: DockerDaemon, box: HomesBox
) -> None:
    """A new volume is empty and root's: its top folder is given to the owner, nothing else is touched."""
    account = Account(OTHER, "ann", {2002: "ann", 4000: "domain users"})
    user = "a.b@c-" + "ü" * 50
    home = Home(home_mount("volume", installation=INSTALLATION, user=user), account, {})
    launch = a_launch(installation=INSTALLATION, lease="home1", digest=box._image)
    options = container_options(
        launch,
        user=user,
        server="",
        home=home.mount,
        network="none",
        request_devices="env",
        command=["sleep", "300"],
        owner=OTHER,
    )
    host = engine.create_host_config(**options.host_config)
    made = engine.create_container(**options.create, host_config=host)
    try:
        await settle_home(_call(engine), made["Id"], home)
        engine.start(made["Id"])
        look = "id -un; id -gn; id -G; stat -c '%u %g %a' ~; touch ~/x && ls -A ~; getent group 4000"
        task = engine.exec_create(made["Id"], ["sh", "-c", look])
        lines = engine.exec_start(task["Id"]).decode().split("\n")
        assert lines[:6] == ["ann", "ann", "2002 4000", "2001 2002 700", "x", "g4000:x:4000:"]
    finally:
        engine.remove_container(made["Id"], force=True)
    measuring = gauge(daemon)
    assert await measuring.measure(user) == HomeUsage(used_bytes=4096, files=2)
    # as somebody else nothing of it can be seen, and that is not taken for all
    stranger = await gauge(daemon, Owner(3003, 3003)).measure(user)
    assert stranger is not None
    assert not stranger.whole


async def test_measured_is_what_lies_on_the_disk(daemon: DockerDaemon, box: HomesBox) -> None:
    """Linked files count once, holes not at all, what a link points to never; nothing is made by looking."""
    measuring = gauge(daemon)
    assert await measuring.measure("nobody") == HomeUsage(used_bytes=0, files=0)
    assert box.exists("nobody") is False
    box.run("mia", "chown 2001:2002 .", owner=Owner(0, 0))
    box.run(
        "mia",
        "head -c 1000000 /dev/zero > one && ln one two && ln -s /usr out && truncate -s 9G hole "
        "&& mkdir -p a/b/c && for n in $(seq 500); do echo $n > a/b/c/$n; done",
    )
    found = await measuring.measure("mia")
    assert found is not None
    assert 3_000_000 < found.used_bytes < 3_300_000
    assert (found.files, found.whole) == (510, True)
    box.run("mia", "chmod 000 a/b")
    partial = await measuring.measure("mia")
    assert partial is not None
    assert (partial.files < 510, partial.whole) == (True, False)
    assert box.helpers_left() == []


async def test_what_takes_too_long_is_unknown_and_ends(daemon: DockerDaemon, box: HomesBox) -> None:
    box.run("noa", "chown -R 2001:2002 .", owner=Owner(0, 0))
    hasty = gauge(daemon, limit_s=0.000001)
    assert await hasty.measure("noa") is None
    assert box.helpers_left() == []


def _call(engine: Any) -> Any:
    async def call(method: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(engine, method)(*args, **kwargs)

    return call
