"""The built image as a session runs it: it starts, lean; a home cannot break it; kernels offer no port."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from allotment_spawner.engines.docker_setup import Bridge, ensure_bridge
from allotment_testing.docker_daemon import wait_until
from allotment_testing.docker_images import image_tag
from allotment_testing.docker_testbed import running_docker
from allotment_testing.engine_makers import DockerMaker

OURS = "0a1b2c3d"
TOKEN = "a" * 32
SERVE = ["python3", "-I", "/usr/local/lib/allotment/singleuser.py"]


class KnowsOneToken(http.server.BaseHTTPRequestHandler):
    """As much of the hub's API as a notebook server asks for."""

    def do_GET(self) -> None:
        known = self.headers.get("Authorization", "").endswith(TOKEN)
        user = {"name": "ada", "kind": "user", "admin": False, "groups": [], "scopes": ["access:servers"]}
        body = json.dumps({"version": "6.1.1", **(user if known else {})}).encode()
        self.send_response(200)
        self.send_header("X-JupyterHub-Version", "6.1.1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *args: Any) -> None:
        pass


class Bed:
    def __init__(self, client: Any, maker: DockerMaker, bridge: Bridge, hub: str) -> None:
        self.client, self.maker, self.bridge, self.hub = client, maker, bridge, hub

    def start(self, lease: str, argv: list[str]) -> str:
        ref = self.maker.create(OURS, lease, argv, extra_env=self._environment())
        self.maker.start(ref)
        return ref

    def url(self, ref: str) -> str:
        networks = self.client.inspect_container(ref)["NetworkSettings"]["Networks"]
        return f"http://{networks[self.bridge.name]['IPAddress']}:8888/user/ada/"

    def ask(self, ref: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(self.url(ref) + path, headers={"Authorization": f"token {TOKEN}"})
        if body is not None:
            request.data = json.dumps(body).encode()
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read().decode()

    def answers(self, ref: str) -> None:
        def ready() -> bool:
            with contextlib.suppress(OSError):
                self.ask(ref, "api")
                return True
            return False

        try:
            wait_until(ready, limit_s=90, what="the notebook server answers")
        except AssertionError:
            raise AssertionError(self.client.logs(ref).decode()[-3000:]) from None

    def inside(self, ref: str, *argv: str) -> tuple[int, str]:
        made = self.client.exec_create(ref, list(argv))
        text = self.client.exec_start(made["Id"]).decode(errors="replace")
        return self.client.exec_inspect(made["Id"])["ExitCode"], text

    def _environment(self) -> dict[str, str]:
        return {
            "JUPYTERHUB_API_TOKEN": TOKEN,
            "JUPYTERHUB_API_URL": self.hub,
            "JUPYTERHUB_ACTIVITY_URL": f"{self.hub}/users/ada/activity",
            "JUPYTERHUB_BASE_URL": "/",
            "JUPYTERHUB_CLIENT_ID": "jupyterhub-user-ada",
            "JUPYTERHUB_HOST": "",
            "JUPYTERHUB_OAUTH_ACCESS_SCOPES": '["access:servers"]',
            "JUPYTERHUB_OAUTH_CALLBACK_URL": "/user/ada/oauth_callback",
            "JUPYTERHUB_SERVER_NAME": "",
            "JUPYTERHUB_SERVICE_PREFIX": "/user/ada/",
            "JUPYTERHUB_SERVICE_URL": "http://0.0.0.0:8888/user/ada/",
            "JUPYTERHUB_USER": "ada",
        }


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with running_docker("minimal") as daemon, contextlib.closing(daemon.client()) as client:
        maker = DockerMaker(daemon.base_url, client, image_tag("minimal"))
        bridge = ensure_bridge(client, name=f"allotment-{OURS}", installation=OURS)
        with http.server.ThreadingHTTPServer((bridge.gateway, 0), KnowsOneToken) as hub:
            thread = threading.Thread(target=hub.serve_forever)
            thread.start()
            yield Bed(client, maker, bridge, f"http://{bridge.gateway}:{hub.server_port}/hub/api")
            maker.clean()
            hub.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def served(bed: Bed) -> str:
    ref = bed.start("served", SERVE)
    bed.answers(ref)
    return ref


def test_the_images_own_command_is_the_lean_start(bed: Bed) -> None:
    config = bed.client.inspect_image(image_tag("minimal"))["Config"]
    assert config["Cmd"] == SERVE
    assert config["User"] == "1000:100"
    assert config["Labels"]["org.allotment.environment"] == "minimal"
    assert "jupyterlab" in json.loads(config["Labels"]["org.allotment.packages"])


def test_a_kernel_runs_and_offers_no_port(bed: Bed, served: str) -> None:
    kernel = json.loads(bed.ask(served, "api/kernels", {"name": "python3"}))

    def started() -> bool:
        return bool(bed.inside(served, "sh", "-c", "ls /run/allotment/jupyter | grep ipc")[1].strip())

    wait_until(started, limit_s=60, what=f"kernel {kernel['id']} has its sockets")
    _, table = bed.inside(served, "cat", "/proc/net/tcp")
    # state 0A is "listening"; what listens on the container's loopback (Docker's name server, the
    # debugger) is nobody else's
    listening = [line.split()[1] for line in table.splitlines()[1:] if line.split()[3] == "0A"]
    assert [one for one in listening if not one.partition(":")[0].endswith("7F")] == ["00000000:22B8"], table


def test_no_news_and_no_update_checks(bed: Bed, served: str) -> None:
    page = bed.ask(served, "lab")
    assert "@jupyterlab/apputils-extension:announcements" in page
    assert json.loads(bed.ask(served, "lab/api/settings/@jupyterlab/apputils-extension:notification"))


def test_health_follows_the_server(bed: Bed, served: str) -> None:
    assert bed.inside(served, "/usr/local/bin/allotment-health")[0] == 0
    idle = bed.start("idle", ["sleep", "600"])
    assert bed.inside(idle, "/usr/local/bin/allotment-health")[0] == 1


def test_a_home_full_of_traps_does_not_stop_the_server(bed: Bed) -> None:
    trap = "echo 'raise SystemExit(9)' > ~/json.py; d=~/.local/lib/python3.11/site-packages/tornado"
    trap += "; mkdir -p $d; cp ~/json.py $d/__init__.py; exec " + " ".join(SERVE)
    ref = bed.start("trapped", ["sh", "-c", trap])
    bed.answers(ref)


def test_the_server_does_without_the_hubs_database_layer(bed: Bed, served: str) -> None:
    script = (
        "import sys; sys.path.insert(0, '/usr/local/lib/allotment'); import singleuser; singleuser.load(); "
    )
    script += "print([one for one in ('jupyterhub.orm', 'alembic', 'lark') if one in sys.modules])"
    code, text = bed.inside(served, "python3", "-I", "-c", script)
    assert (code, text.strip()) == (0, "[]")
