"""What the spawner must make for a granted lease (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from allotment_spawner.wire import Launch

from allotment_hub.catalog import Flavor
from allotment_hub.runtime import Runtime

__all__ = ["launch_of"]

_GIB = 2**30


def launch_of(
    *,
    runtime: Runtime,
    flavor_id: str,
    flavor: Flavor,
    environment: str,
    lease_id: str,
    devices: Sequence[str],
    simulated: bool,
) -> Launch:
    """Written into the lease at the grant, so that a later change of the catalogue alters nothing.

    Without the image, which was decided at the request.
    """
    names = ",".join(devices)
    env = {
        "ALLOTMENT_URL": runtime.broker_url_for_workloads,
        "ALLOTMENT_LEASE": lease_id,
        "ALLOTMENT_DEVICES": names,
        "ALLOTMENT_INSTALLATION": runtime.installation,
        "ALLOTMENT_ENVIRONMENT": environment,
        "ALLOTMENT_FLAVOR": flavor_id,
        "ALLOTMENT_FLAVOR_TITLE": flavor.title,
    }
    docker = runtime.engine == "docker"
    if not docker:
        env["CUDA_VISIBLE_DEVICES"] = names
    return Launch(
        installation=runtime.installation,
        engine=runtime.engine,
        image=None,
        image_digest=None,
        cpu=flavor.cpu,
        memory_bytes=int(flavor.memory_gib * _GIB),
        shm_bytes=int(flavor.shm_gib * _GIB),
        pids=flavor.pids,
        env=env,
        devices=tuple(devices),
        simulated=simulated,
    )
