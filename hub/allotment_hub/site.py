"""site.yaml: engines, pools, URLs, sign-in and policies of one installation."""

from __future__ import annotations

from typing import Annotated, Literal

from allotment_spawner.engines.owners import OwnerRule
from allotment_spawner.launch.container import Owner
from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "BrokerSettings",
    "BudgetPolicies",
    "DatasetSettings",
    "DiskSettings",
    "DockerSettings",
    "HomeSettings",
    "Layout",
    "Limit",
    "LocalSettings",
    "MetricSettings",
    "Mount",
    "Policies",
    "Pool",
    "ScratchSettings",
    "SignIn",
    "Site",
]

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]


Folder = Annotated[str, Field(pattern=r"^/[^\x00-\x1f:,]*$", max_length=1024)]
"""An absolute path; no colon or comma, which Docker and mount options read as more than a name."""


_PORT = "6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3}"
Host = Annotated[
    str,
    Field(pattern=rf"^(\[[0-9a-fA-F:.]{{2,45}}\]|[A-Za-z0-9][A-Za-z0-9._-]{{0,252}})(:({_PORT}))?$"),
]
"""HOST, HOST:PORT, [IPV6] or [IPV6]:PORT."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Layout(_Section):
    """What every GPU of a static pool holds: profile name -> count."""

    devices: dict[str, Annotated[int, Field(ge=1, le=16)]]


class Pool(_Section):
    """Devices with the same rules. `gpus` is "all" GPUs of this MIG mode, or a list of UUIDs or indices."""

    name: Name
    mig: bool
    gpus: Literal["all"] | tuple[str | int, ...] = "all"
    layout: Literal["dynamic"] | Layout = "dynamic"
    foreign: Literal["leave", "adopt"] = "leave"
    """Slices found on the GPU that Allotment did not make: leave them alone, or use the idle ones."""
    full_is_largest_profile: bool = False
    """Whether `gpu-full` may be the largest MIG profile of this pool."""
    flavors: Literal["all"] | tuple[Name, ...] = "all"
    groups: Literal["everyone"] | tuple[str, ...] = "everyone"


class Policies(_Section):
    sessions_per_person: Annotated[int, Field(ge=1, le=1000)] = 3
    wait_limit_s: Annotated[int, Field(ge=10, le=604800)] = 8 * 3600
    grant_deadline_s: Annotated[int, Field(ge=5, le=3600)] = 30
    start_limit_s: Annotated[int, Field(ge=10, le=3600)] = 180
    """From confirm to active."""
    keep_place_s: Annotated[int, Field(ge=5, le=3600)] = 300
    """How long a queued lease whose spawner vanished keeps its place."""
    stop_grace_s: Annotated[int, Field(ge=1, le=600)] = 10


class DockerSettings(_Section):
    socket: str = "unix:///var/run/docker.sock"
    network: Name | None = None
    """The bridge of this installation's sessions; None is allotment-<installation>."""
    image_prefix: str = "allotment"
    """Images are named PREFIX/ENVIRONMENT:VERSION-VARIANT."""
    variant: Literal["auto", "cpu", "cuda"] = "auto"
    home: str = "volume"
    """"volume" (one named volume per person) or an absolute path template with {username}."""
    request_devices: Literal["auto", "nvidia", "cdi", "env"] = "auto"
    """How a device is asked for: by what the engine has, or forced; "env" passes variables only."""

    def network_of(self, installation: str) -> str:
        """One bridge for each installation, so that two on one engine need no agreement."""
        return self.network or f"allotment-{installation}"


class HomeSettings(_Section):
    """Homes of sessions in containers; where they lie is `docker.home`."""

    owner: Literal["fixed", "nss"] = "fixed"
    """Whose files a home holds: `uid`:`gid` for everybody, or each person's own as the system knows them."""
    uid: Annotated[int, Field(ge=1000, le=2**31)] = 1000
    gid: Annotated[int, Field(ge=1, le=2**31)] = 100
    quota_gib: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    """What a home may hold; enforced where the file system has project quotas, else only warned of."""
    warn_at_percent: Annotated[int, Field(ge=1, le=100)] = 90
    measure_every_h: Annotated[float, Field(ge=0.1, le=720)] = 6.0
    archive: Folder | None = None
    """Where homes of people who left are packed; None is `archive` in the data directory."""

    @property
    def rule(self) -> OwnerRule:
        """Whose files each person's are."""
        return OwnerRule(kind=self.owner, fixed=Owner(uid=self.uid, gid=self.gid))


class Mount(_Section):
    """A folder of this machine that sessions see at `target`; by default /data/NAME."""

    name: Name
    title: str = ""
    path: Folder
    target: Folder | None = None
    read: Literal["everyone"] | tuple[str, ...] = "everyone"
    write: tuple[str, ...] = ()
    """Groups that may also write."""

    @property
    def inside(self) -> str:
        """Where sessions see it."""
        return self.target or f"/data/{self.name}"


class DatasetSettings(_Section):
    """The registry's cache on this machine; sessions see a dataset at /datasets/NAME, read-only."""

    cache: Folder | None = None
    """A folder on a fast disk; None is `datasets` in the data directory."""
    limit_gib: Annotated[float, Field(gt=0, le=1_000_000)] = 200.0
    allow_hosts: tuple[Host, ...] = ()
    """HOST or HOST:PORT whose private addresses may be asked all the same (an object store in the house)."""
    allow_paths: tuple[Folder, ...] = ()
    """Folders of this machine that a dataset's source may lie in."""
    s3_endpoint: Annotated[str, Field(pattern=r"^https?://[^/@?#\s]+/?$", max_length=300)] | None = None
    """Where s3:// addresses are served; None is Amazon. Keys, if any, stand in the data directory's
    secrets/s3.json."""


class ScratchSettings(_Section):
    """A folder for each session alone, at /scratch and /tmp, wiped at its end."""

    path: Folder | None = None
    """On a fast local disk; None is `scratch` in the data directory."""
    size_gib: Annotated[float, Field(gt=0, le=1_000_000)] = 20.0


class DiskSettings(_Section):
    floor_gib: Annotated[float, Field(ge=0, le=1_000_000)] = 5.0
    """Free space below which nothing new is started or fetched."""


class Limit(_Section):
    """What a person of these groups may have at a time of these flavors; each key alone is a limit.

    Of several limits for one flavor the person keeps all; "everyone" holds for everybody, too.
    """

    groups: Literal["everyone"] | Annotated[tuple[str, ...], Field(min_length=1)] = "everyone"
    flavors: Literal["all"] | Annotated[tuple[Name, ...], Field(min_length=1)] = "all"
    sessions: Annotated[int, Field(ge=0, le=1000)] | None = None
    devices: Annotated[int, Field(ge=0, le=1000)] | None = None
    """GPUs and slices together."""
    hours: Annotated[float, Field(gt=0, le=8760)] | None = None
    """How long one session may run at a time."""


class BudgetPolicies(_Section):
    warn_at_percent: Annotated[tuple[Annotated[int, Field(ge=1, le=100)], ...], Field(max_length=5)] = (
        80,
        95,
    )
    """Of a budget used: the person's running sessions are told."""
    grace_minutes: Annotated[int, Field(ge=1, le=1440)] = 10
    """From the announcement to the stop when a hard budget is used up."""


class MetricSettings(_Section):
    """How hard devices and sessions work; the samples lie in a file of their own."""

    every_s: Annotated[float, Field(ge=1, le=300)] = 5.0
    keep_raw_h: Annotated[float, Field(ge=0.1, le=168)] = 1.0
    keep_minutes_days: Annotated[float, Field(ge=1, le=3660)] = 30.0
    keep_hours_days: Annotated[float, Field(ge=1, le=36600)] = 730.0
    dcgm_url: Annotated[str, Field(pattern=r"^https?://[^/@?#\s]+(/[^@?#\s]*)?$", max_length=300)] | None = (
        None
    )
    """A DCGM exporter's metrics page, for what NVML cannot tell of MIG slices before Hopper."""
    name_people: bool = False
    """Whether the page for Prometheus has people's names as labels of their sessions."""


class LocalSettings(_Section):
    trust_users: bool = False
    open_accounts: tuple[str, ...] = ("admin", "demo")


class SignIn(_Section):
    operators_group: str = "allotment-operators"


class BrokerSettings(_Section):
    database_url: str | None = None
    """SQLAlchemy URL; None is SQLite in the data directory."""


class Site(_Section):
    """The whole file; every key optional."""

    title: str = "Allotment"
    currency: str = "credits"
    public_url: str | None = None
    """How browsers reach this site, where that differs from the bind address."""
    pools: tuple[Pool, ...] = (Pool(name="mig", mig=True), Pool(name="whole", mig=False))
    policies: Policies = Policies()
    docker: DockerSettings = DockerSettings()
    homes: HomeSettings = HomeSettings()
    mounts: tuple[Mount, ...] = ()
    datasets: DatasetSettings = DatasetSettings()
    scratch: ScratchSettings = ScratchSettings()
    limits: tuple[Limit, ...] = ()
    budgets: BudgetPolicies = BudgetPolicies()
    metrics: MetricSettings = MetricSettings()
    disk: DiskSettings = DiskSettings()
    local: LocalSettings = LocalSettings()
    sign_in: SignIn = SignIn()
    broker: BrokerSettings = BrokerSettings()
