"""Makes workloads the way the spawners do, without a hub: for tests of the engines."""

from __future__ import annotations

import gc
import subprocess
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from allotment_spawner.engines.base import Engine
from allotment_spawner.engines.docker import DockerEngine
from allotment_spawner.engines.docker_setup import ensure_bridge
from allotment_spawner.engines.local import LocalEngine
from allotment_spawner.launch.container import container_options, home_mount
from allotment_spawner.launch.process import GATE_OPEN, gate_argv, process_env
from allotment_spawner.wire import Launch

__all__ = ["DockerMaker", "LocalMaker", "Maker", "a_launch"]


def a_launch(
    *,
    installation: str,
    lease: str,
    devices: Sequence[str] = (),
    digest: str | None = None,
    engine: str = "docker",
    **limits: Any,
) -> Launch:
    """A small launch; `limits` replaces cpu, memory_bytes, shm_bytes or pids."""
    sizes = {"cpu": 1.0, "memory_bytes": 512 << 20, "shm_bytes": 64 << 20, "pids": 128}
    return Launch(
        installation=installation,
        engine=engine,
        image=digest,
        image_digest=digest,
        env={
            "ALLOTMENT_URL": "http://127.0.0.1:1/services/allotment/",
            "ALLOTMENT_LEASE": lease,
            "ALLOTMENT_DEVICES": ",".join(devices),
        },
        devices=tuple(devices),
        simulated=True,
        **{**sizes, **limits},
    )


class Maker(Protocol):
    """What the contract suite needs of an engine's platform."""

    def engine(self, installation: str) -> Engine: ...
    def broken_engine(self, installation: str) -> Engine: ...
    def create(
        self, installation: str, lease: str, argv: Sequence[str], devices: Sequence[str] = ()
    ) -> str: ...
    def start(self, engine_ref: str) -> None: ...
    def running(self, engine_ref: str) -> bool: ...
    def clean(self) -> None: ...


class LocalMaker:
    """Gated processes in sessions of their own, as GpuLocalSpawner makes them."""

    def __init__(self, empty: Path) -> None:
        self._empty = empty
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def engine(self, installation: str) -> Engine:
        return LocalEngine(installation=installation)

    def broken_engine(self, installation: str) -> Engine:
        return LocalEngine(installation=installation, proc=self._empty / "no-proc")

    def create(self, installation: str, lease: str, argv: Sequence[str], devices: Sequence[str] = ()) -> str:
        launch = a_launch(installation=installation, lease=lease, devices=devices, engine="local")
        env = process_env(launch, {"PATH": "/usr/bin:/bin"}, user="ada", server="lab")
        self._processes[lease] = subprocess.Popen(
            gate_argv(argv), env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        return lease

    def process(self, engine_ref: str) -> subprocess.Popen[bytes]:
        return self._processes[engine_ref]

    def start(self, engine_ref: str) -> None:
        pipe = self._processes[engine_ref].stdin
        assert pipe is not None
        pipe.write(GATE_OPEN)
        pipe.close()

    def running(self, engine_ref: str) -> bool:
        return self._processes[engine_ref].poll() is None

    def clean(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        self._processes.clear()


class DockerMaker:
    """Containers from launch/'s options, as GpuDockerSpawner makes them."""

    def __init__(self, base_url: str, client: Any, image: str) -> None:
        self.base_url = base_url
        self.client = client
        self.digest: str = client.inspect_image(image)["Id"]
        self._made: list[str] = []
        self._engines: list[DockerEngine] = []

    def engine(self, installation: str) -> DockerEngine:
        return self._kept(DockerEngine(installation=installation, base_url=self.base_url))

    def broken_engine(self, installation: str) -> DockerEngine:
        return self._kept(DockerEngine(installation=installation, base_url="unix:///no/such/docker.sock"))

    def _kept(self, engine: DockerEngine) -> DockerEngine:
        self._engines.append(engine)
        return engine

    def create(
        self,
        installation: str,
        lease: str,
        argv: Sequence[str],
        devices: Sequence[str] = (),
        extra_env: Mapping[str, str] | None = None,
        **changes: Any,
    ) -> str:
        """`changes` go over create_container's arguments (name, labels): for forgeries."""
        bridge = ensure_bridge(self.client, name=f"allotment-{installation}", installation=installation)
        options = container_options(
            a_launch(installation=installation, lease=lease, devices=devices, digest=self.digest),
            user="ada",
            server="lab",
            home=home_mount("volume", installation=installation, user="ada"),
            network=bridge.name,
            request_devices="nvidia",
            command=argv,
            extra_env=extra_env,
        )
        host_config = self.client.create_host_config(**options.host_config)
        made = self.client.create_container(**{**options.create, **changes}, host_config=host_config)
        self._made.append(made["Id"])
        return str(changes.get("name", options.name))

    def start(self, engine_ref: str) -> None:
        self.client.start(engine_ref)

    def running(self, engine_ref: str) -> bool:
        listed = self.client.containers(filters={"name": f"^/{engine_ref}$"})
        return bool(listed)

    def clean(self) -> None:
        for entry in self.client.containers(all=True):
            if entry["Id"] in self._made:
                self.client.remove_container(entry["Id"], force=True)
        self._made.clear()
        for engine in self._engines:
            engine.close()
        self._engines.clear()
        with warnings.catch_warnings():
            # docker-py leaves the socket of a refused connection to the garbage collector
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
