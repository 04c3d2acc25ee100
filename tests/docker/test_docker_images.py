"""The built image as a session runs it: it starts, lean; a home cannot break it; kernels offer no port."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from allotment_testing.docker_daemon import wait_until
from allotment_testing.docker_image_bed import SERVE, ImageBed, image_bed
from allotment_testing.docker_images import image_tag
from allotment_testing.docker_testbed import running_docker


@pytest.fixture(scope="module")
def bed() -> Iterator[ImageBed]:
    with running_docker("minimal") as daemon, image_bed(daemon, "minimal") as bed:
        yield bed


@pytest.fixture(scope="module")
def served(bed: ImageBed) -> str:
    ref = bed.start("served", SERVE)
    bed.answers(ref)
    return ref


def test_the_images_own_command_is_the_lean_start(bed: ImageBed) -> None:
    config = bed.client.inspect_image(image_tag("minimal"))["Config"]
    assert config["Cmd"] == SERVE
    assert config["User"] == "1000:100"
    assert config["Labels"]["org.allotment.environment"] == "minimal"
    assert "jupyterlab" in json.loads(config["Labels"]["org.allotment.packages"])


def test_a_kernel_runs_and_offers_no_port(bed: ImageBed, served: str) -> None:
    kernel = json.loads(bed.ask(served, "api/kernels", {"name": "python3"}))

    def started() -> bool:
        return bool(bed.inside(served, "sh", "-c", "ls /run/allotment/jupyter | grep ipc")[1].strip())

    wait_until(started, limit_s=60, what=f"kernel {kernel['id']} has its sockets")
    _, table = bed.inside(served, "cat", "/proc/net/tcp")
    # state 0A is "listening"; what listens on the container's loopback (Docker's name server, the
    # debugger) is nobody else's
    listening = [line.split()[1] for line in table.splitlines()[1:] if line.split()[3] == "0A"]
    assert [one for one in listening if not one.partition(":")[0].endswith("7F")] == ["00000000:22B8"], table


def test_no_news_and_no_update_checks(bed: ImageBed, served: str) -> None:
    page = bed.ask(served, "lab")
    assert "@jupyterlab/apputils-extension:announcements" in page
    assert json.loads(bed.ask(served, "lab/api/settings/@jupyterlab/apputils-extension:notification"))


def test_health_follows_the_server(bed: ImageBed, served: str) -> None:
    assert bed.inside(served, "/usr/local/bin/allotment-health")[0] == 0
    idle = bed.start("idle", ["sleep", "600"])
    assert bed.inside(idle, "/usr/local/bin/allotment-health")[0] == 1


def test_a_home_full_of_traps_does_not_stop_the_server(bed: ImageBed) -> None:
    trap = "echo 'raise SystemExit(9)' > ~/json.py; d=~/.local/lib/python3.11/site-packages/tornado"
    trap += "; mkdir -p $d; cp ~/json.py $d/__init__.py; exec " + " ".join(SERVE)
    ref = bed.start("trapped", ["sh", "-c", trap])
    bed.answers(ref)


def test_the_server_does_without_the_hubs_database_layer(bed: ImageBed, served: str) -> None:
    script = (
        "import sys; sys.path.insert(0, '/usr/local/lib/allotment'); import singleuser; singleuser.load(); "
    )
    script += "print([one for one in ('jupyterhub.orm', 'alembic', 'lark') if one in sys.modules])"
    code, text = bed.inside(served, "python3", "-I", "-c", script)
    assert (code, text.strip()) == (0, "[]")


def test_a_tour_lies_in_a_new_home(bed: ImageBed, served: str) -> None:
    code, text = bed.inside(served, "ls", "-l", "/home/jovyan/welcome-minimal.ipynb")
    assert code == 0
    assert " jovyan " in text


def test_a_home_that_cannot_be_written_still_opens(bed: ImageBed) -> None:
    new = "rm -rf ~/.allotment ~/welcome-minimal.ipynb; chmod 0500 ~; exec "
    ref = bed.start("locked", ["sh", "-c", new + " ".join(SERVE)])
    bed.answers(ref)
    # the home is the next test's, too
    bed.inside(ref, "chmod", "0700", "/home/jovyan")
    assert "The tour was not laid into the home" in bed.client.logs(ref).decode()
