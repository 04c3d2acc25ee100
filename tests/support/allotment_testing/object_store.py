"""moto's S3 server as a process of its own, on loopback."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

__all__ = ["ObjectStore", "object_store"]

_START = """
import sys
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
print(f"listening {server.server_port}", flush=True)
sys.stdout = sys.stderr
server.serve_forever()
"""


@dataclass
class ObjectStore:
    port: int

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def endpoint(self) -> str:
        return f"http://{self.host}"

    def put(self, bucket: str, **objects: bytes) -> None:
        """Make the bucket (again) and put these, readable for all; `__` in a name stands for `/`."""
        with httpx.Client(
            base_url=self.endpoint, trust_env=False, headers={"x-amz-acl": "public-read"}
        ) as client:
            client.put(f"/{bucket}")
            for name, body in objects.items():
                client.put(f"/{bucket}/{name.replace('__', '/')}", content=body).raise_for_status()


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Serves until the block ends; takes 2 s to start."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _START],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        found = re.fullmatch(r"listening (\d+)\n", process.stdout.readline())
        assert found is not None, "moto did not start"
        process.stdout.close()
        yield ObjectStore(int(found[1]))
    finally:
        process.kill()
        process.wait()
