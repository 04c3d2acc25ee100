"""GpuDockerSpawner: DockerSpawner whose containers run on exactly their lease's device."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar

import docker
from docker.errors import NotFound
from docker.utils import kwargs_from_env
from dockerspawner import DockerSpawner
from traitlets import Enum, Float, Integer, Unicode, default

from allotment_spawner.core.errors import EngineUnavailable
from allotment_spawner.daemon_threads import DaemonThreads
from allotment_spawner.engines.docker_pull import PatientClient
from allotment_spawner.engines.owners import OwnerRule
from allotment_spawner.launch.container import ContainerOptions, Owner, container_options
from allotment_spawner.launch.names import LABEL_INSTALLATION, LABEL_SERVER, LABEL_USER, lease_of_name
from allotment_spawner.spawners.docker_create import create_arguments
from allotment_spawner.spawners.docker_workload import DockerWorkload, docker_answers
from allotment_spawner.spawners.homes import Home, Homes, settle_home
from allotment_spawner.spawners.mixin import GpuSpawnerMixin
from allotment_spawner.spawners.pulling import Pulls
from allotment_spawner.spawners.session import Session
from allotment_spawner.wire import Launch, Work

__all__ = ["GpuDockerSpawner"]

LABEL_ATTEMPT = "allotment.attempt"
_HOME_THREADS = 4
_PULL_THREADS = 4


class GpuDockerSpawner(GpuSpawnerMixin, DockerSpawner):
    """DockerSpawner's options all work; image, device, CPU and memory are the lease's."""

    home = Unicode(
        "volume", config=True, help="A person's home: `volume`, or an absolute path with {username}."
    )
    home_owner: Any = Enum(
        ["fixed", "nss"],
        "fixed",
        config=True,
        help="Whose files a home holds: home_uid:home_gid for everybody, or as this system knows the person.",
    )
    home_uid = Integer(1000, min=1, config=True, help="For the fixed owner.")
    home_gid = Integer(100, min=1, config=True, help="For the fixed owner.")
    home_limit = Float(20.0, config=True, help="Seconds for name service and file server, each.")
    request_devices: Any = Enum(
        ["nvidia", "cdi", "env"], "nvidia", config=True, help="How Docker is asked for a device."
    )
    docker_threads = Integer(32, min=2, config=True, help="Calls to Docker at the same time.")

    _pool: ClassVar[ThreadPoolExecutor | None] = None
    _home_threads: ClassVar[DaemonThreads | None] = None
    _the_pulls: ClassVar[Pulls | None] = None
    _clients: ClassVar[threading.local] = threading.local()

    @default("network_name")
    def _default_network(self) -> str:
        return "allotment"

    @default("pull_policy")
    def _default_pull_policy(self) -> str:
        """Sessions are made from content ids of images that were built here."""
        return "skip"

    @default("remove")
    def _default_remove(self) -> bool:
        """A stopped container would be started again with its old device."""
        return True

    @property
    def executor(self) -> ThreadPoolExecutor:
        """The stock one has a single thread for the whole hub: a pull would stop every poll."""
        if GpuDockerSpawner._pool is None:
            GpuDockerSpawner._pool = ThreadPoolExecutor(self.docker_threads, thread_name_prefix="docker")
        return GpuDockerSpawner._pool

    def _docker(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """One client a thread: a requests session is not made for several."""
        client = getattr(self._clients, "client", None)
        if client is None:
            tls = {"tls": docker.tls.TLSConfig(**self.tls_config)} if self.tls_config else {}
            arguments = {"version": "auto", **tls, **kwargs_from_env(), **self.client_kwargs}
            client = self._clients.client = docker.APIClient(**arguments)
        return getattr(client, method)(*args, **kwargs)

    def _pulls(self) -> Pulls:
        """One for the whole hub, with clients and threads of its own: a pull takes minutes."""
        if GpuDockerSpawner._the_pulls is None:
            tls = {"tls": docker.tls.TLSConfig(**self.tls_config)} if self.tls_config else {}
            arguments = {"version": "auto", **tls, **kwargs_from_env(), **self.client_kwargs}
            threads = DaemonThreads(_PULL_THREADS, name="pull")
            GpuDockerSpawner._the_pulls = Pulls(client=partial(PatientClient, **arguments), threads=threads)
        return GpuDockerSpawner._the_pulls

    # -- GpuSpawnerMixin -------------------------------------------------------------------------

    async def build_workload(self, launch: Launch, session: Session) -> DockerWorkload:
        # the stock variables MEM_LIMIT and CPU_LIMIT in the server's environment follow from these
        self.mem_limit, self.cpu_limit = launch.memory_bytes, launch.cpu
        image: str = launch.image or launch.image_digest or ""
        self.image = image
        await self.pull_image(image)
        home = await self._homes().of(session.user, launch.installation)
        own_command = self.cmd or self.get_args()
        options = container_options(
            launch,
            user=session.user,
            server=session.server,
            home=home.mount,
            owner=home.account.owner,
            network=self.network_name,
            request_devices=self.request_devices,
            command=await self.get_command() if own_command else None,
            extra_env={**self.get_env(), **home.env},
        )
        options.create["labels"][LABEL_ATTEMPT] = session.attempt
        self.object_name, self.object_id = options.name, ""
        fetch = partial(self._pulls().ensure, launch, docker=self.docker, tell=self._say_pulling)
        create = await self._create_arguments(options)
        return self._workload(options.name, create=create, home=home, fetch=fetch)

    async def find_workload(self) -> Session | None:
        """By label: the hub may have died before it stored anything. Never one that was not started."""
        labels = {
            LABEL_INSTALLATION: self.installation,
            LABEL_USER: self.user.name,
            LABEL_SERVER: self.name,
        }
        wanted = {"label": [f"{key}={value}" for key, value in labels.items()]}
        async with docker_answers():
            listed = await self.docker("containers", all=True, filters=wanted)
        started = [one for one in listed if one.get("State") != "created"]
        started.sort(key=lambda one: (one.get("State") == "running", one["Created"]), reverse=True)
        for one in started:
            name = str(one["Names"][0]).removeprefix("/")
            lease = lease_of_name(name, self.installation)
            # the filter matches a prefix-free value, but an empty one matches any: compared again
            if lease is None or one["Labels"].get(LABEL_SERVER) != self.name:
                continue
            self.object_name, self.object_id = name, one["Id"]
            return Session(
                user=self.user.name,
                server=self.name,
                attempt=one["Labels"].get(LABEL_ATTEMPT, ""),
                lease=lease,
                workload=self._workload(name),
            )
        return None

    def workload_of(self, state: Mapping[str, Any]) -> DockerWorkload:
        return self._workload(state["allotment"]["engine_ref"])

    def _say_pulling(self, work: Work) -> None:
        if self._board is not None:
            self._board.pulling(work)

    # -- Docker ------------------------------------------------------------------------------------

    def _homes(self) -> Homes:
        threads = GpuDockerSpawner._home_threads
        if threads is None:
            threads = GpuDockerSpawner._home_threads = DaemonThreads(_HOME_THREADS, name="homes")
        rule = OwnerRule(kind=self.home_owner, fixed=Owner(uid=self.home_uid, gid=self.home_gid))
        return Homes(template=self.home, rule=rule, threads=threads, limit_s=self.home_limit)

    def _workload(
        self,
        name: str,
        *,
        create: Mapping[str, Any] | None = None,
        home: Home | None = None,
        fetch: Callable[[], Awaitable[None]] | None = None,
    ) -> DockerWorkload:
        return DockerWorkload(
            engine_ref=name,
            installation=self.installation,
            docker=self.docker,
            locate=self._locate,
            create=create,
            after_create=None if home is None else partial(settle_home, self.docker, home=home),
            after_start=self._after_start if self.post_start_cmd else None,
            fetch=fetch,
        )

    async def _create_arguments(self, options: ContainerOptions) -> dict[str, Any]:
        create, host = create_arguments(
            options,
            ports=() if self.use_internal_ip else (self.port,),
            host_ip=self.host_ip,
            exposed=self.port,
            volumes=self.volume_mount_points,
            host_config={"binds": self.volume_binds, "links": self.links, "mounts": self.mount_binds},
            extra_create=await self._site_kwargs(self.extra_create_kwargs),
            extra_host=await self._site_kwargs(self.extra_host_config),
        )
        # in a thread: the first call of a client asks the engine for its version
        made = await self.docker("create_host_config", **host)
        return {**create, "host_config": {**create.get("host_config", {}), **made}}

    async def _site_kwargs(self, value: Any) -> dict[str, Any]:
        value = self._eval_if_callable(value)
        if inspect.isawaitable(value):
            value = await value
        return self._render_templates(value)

    async def _locate(self, container_id: str) -> str:
        """By inspection: after a restart the stock spawner guesses a port that the container never had."""
        self.object_id = container_id
        try:
            ip, port = await self.get_ip_and_port()
        except NotFound:
            raise
        except RuntimeError as error:
            raise _no_address() from error
        if not ip:
            raise _no_address()
        host = f"[{ip}]" if ":" in ip else ip
        scheme = "https" if self.internal_ssl else "http"
        return f"{scheme}://{host}:{port}{self.server.base_url if self.server else '/'}"

    async def _after_start(self, container_id: str) -> None:
        self.object_id = container_id
        await self.post_start_exec()


def _no_address() -> EngineUnavailable:
    return EngineUnavailable("The server's container has no address yet.", "Wait a moment.")
