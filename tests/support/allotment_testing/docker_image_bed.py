"""A notebook server in a container of a built image, and a hub that knows one token."""

from __future__ import annotations

import base64
import contextlib
import http.client
import http.server
import json
import os
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

from allotment_spawner.engines.docker_setup import Bridge, ensure_bridge

from allotment_testing.docker_daemon import DockerDaemon, wait_until
from allotment_testing.docker_images import image_tag
from allotment_testing.engine_makers import DockerMaker

__all__ = ["SERVE", "STRANGER", "TOKEN", "ImageBed", "image_bed"]

OURS = "0a1b2c3d"
TOKEN = "a" * 32
STRANGER = "b" * 32
"""A token of somebody else, who may reach their own server only."""
SERVE = ["python3", "-I", "/usr/local/lib/allotment/singleuser.py"]
_MEMORY_BYTES = 4 << 30
_PEOPLE = {TOKEN: ("ada", "access:servers!user=ada"), STRANGER: ("eve", "access:servers!user=eve")}


class KnowsTwoTokens(http.server.BaseHTTPRequestHandler):
    """As much of the hub's API as a notebook server asks for."""

    def do_GET(self) -> None:
        token = self.headers.get("Authorization", "").rpartition(" ")[2]
        user: dict[str, Any] = {}
        if token in _PEOPLE:
            name, scope = _PEOPLE[token]
            user = {"name": name, "kind": "user", "admin": False, "groups": [], "scopes": [scope]}
        body = json.dumps({"version": "6.1.1", **user}).encode()
        self.send_response(200)
        self.send_header("X-JupyterHub-Version", "6.1.1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *args: Any) -> None:
        pass


class ImageBed:
    """Starts containers of `image` as sessions of ada and talks to their servers."""

    def __init__(
        self, environment: str, *, client: Any, maker: DockerMaker, bridge: Bridge, hub: str
    ) -> None:
        self.environment = environment
        self.client, self.maker, self.bridge, self.hub = client, maker, bridge, hub

    def start(self, lease: str, argv: Sequence[str], **variables: str) -> str:
        """A running container's id; `variables` join the hub's."""
        ref = self.maker.create(OURS, lease, list(argv), extra_env=self._environment() | variables)
        # as much as the smallest flavor has: a compiler needs it
        self.client.update_container(ref, mem_limit=_MEMORY_BYTES, memswap_limit=_MEMORY_BYTES)
        self.maker.start(ref)
        return ref

    def url(self, ref: str) -> str:
        networks = self.client.inspect_container(ref)["NetworkSettings"]["Networks"]
        return f"http://{networks[self.bridge.name]['IPAddress']}:8888/user/ada/"

    def ask(self, ref: str, path: str, body: Any = None, *, token: str | None = TOKEN) -> Any:
        """The answer's text; urllib's HTTPError for a refusal. Redirects are followed."""
        headers = {"Authorization": f"token {token}"} if token else {}
        request = urllib.request.Request(self.url(ref) + path, headers=headers)
        if body is not None:
            request.data = json.dumps(body).encode()
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.read().decode()

    def status(self, ref: str, path: str, *, token: str | None = TOKEN, upgrade: bool = False) -> int:
        """The answer's status, redirects not followed; with `upgrade` a websocket is asked for."""
        url = urllib.parse.urlsplit(self.url(ref) + path)
        headers = {"Authorization": f"token {token}"} if token else {}
        if upgrade:
            key = base64.b64encode(os.urandom(16)).decode()
            headers |= {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Key": key}
            headers["Sec-WebSocket-Version"] = "13"
        with contextlib.closing(http.client.HTTPConnection(str(url.hostname), url.port, timeout=30)) as link:
            link.request("GET", f"{url.path}?{url.query}", headers=headers)
            with link.getresponse() as answer:
                return answer.status

    def answers(self, ref: str, *, every_s: float = 0.05) -> None:
        """Wait until the server answers; AssertionError with its log when it does not."""

        def ready() -> bool:
            with contextlib.suppress(OSError):
                self.ask(ref, "api")
                return True
            return False

        try:
            wait_until(ready, limit_s=90, what="the notebook server answers", every_s=every_s)
        except AssertionError:
            raise AssertionError(self.client.logs(ref).decode()[-3000:]) from None

    def inside(self, ref: str, *argv: str) -> tuple[int, str]:
        """(exit code, output) of a command in the container, as its user."""
        made = self.client.exec_create(ref, list(argv))
        text = self.client.exec_start(made["Id"]).decode(errors="replace")
        return self.client.exec_inspect(made["Id"])["ExitCode"], text

    def cpu_seconds(self, ref: str) -> float:
        """CPU time that the container has used."""
        stats = self.client.stats(ref, stream=False, one_shot=True)
        return float(stats["cpu_stats"]["cpu_usage"]["total_usage"]) / 1e9

    def _environment(self) -> dict[str, str]:
        return {
            "JUPYTERHUB_API_TOKEN": TOKEN,
            "JUPYTERHUB_API_URL": self.hub,
            "JUPYTERHUB_ACTIVITY_URL": f"{self.hub}/users/ada/activity",
            "JUPYTERHUB_BASE_URL": "/",
            "JUPYTERHUB_CLIENT_ID": "jupyterhub-user-ada",
            "JUPYTERHUB_HOST": "",
            "JUPYTERHUB_OAUTH_ACCESS_SCOPES": '["access:servers!user=ada"]',
            "JUPYTERHUB_OAUTH_CALLBACK_URL": "/user/ada/oauth_callback",
            "JUPYTERHUB_SERVER_NAME": "",
            "JUPYTERHUB_SERVICE_PREFIX": "/user/ada/",
            "JUPYTERHUB_SERVICE_URL": "http://0.0.0.0:8888/user/ada/",
            "JUPYTERHUB_USER": "ada",
        }


@contextlib.contextmanager
def image_bed(daemon: DockerDaemon, environment: str) -> Iterator[ImageBed]:
    """For the image of `environment` on this engine; its containers are removed at the end."""
    with contextlib.closing(daemon.client()) as client:
        maker = DockerMaker(daemon.base_url, client, image_tag(environment))
        bridge = ensure_bridge(client, name=f"allotment-{OURS}", installation=OURS)
        with http.server.ThreadingHTTPServer((bridge.gateway, 0), KnowsTwoTokens) as hub:
            thread = threading.Thread(target=hub.serve_forever)
            thread.start()
            try:
                url = f"http://{bridge.gateway}:{hub.server_port}/hub/api"
                yield ImageBed(environment, client=client, maker=maker, bridge=bridge, hub=url)
            finally:
                maker.clean()
                hub.shutdown()
                thread.join()
