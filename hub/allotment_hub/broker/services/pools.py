"""Which pool a GPU belongs to, and which pools a flavor may use (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from allotment_spawner.core.inventory import Gpu
from allotment_spawner.core.request import Request, request_for

from allotment_hub.catalog import Flavor
from allotment_hub.site import Pool

__all__ = ["EVERYONE", "may_use", "pool_of", "request_of", "restricted"]

EVERYONE = "everyone"


def pool_of(gpu: Gpu, pools: Sequence[Pool]) -> tuple[Pool | None, str | None]:
    """The GPU's pool, and a sentence with the remedy when it cannot be used there.

    A pool that names the GPU wins over one that takes all of a MIG mode. MIG mode is never switched by
    us: switching it under somebody's work would end that work.
    """
    named = [pool for pool in pools if pool.gpus != "all" and _names(pool, gpu)]
    if named:
        pool = named[0]
        return pool, None if pool.mig == gpu.mig else _wrong_mode(gpu, pool)
    for pool in pools:
        if pool.gpus == "all" and pool.mig == gpu.mig:
            return pool, None
    mode = "on" if gpu.mig else "off"
    return None, (
        f"GPU {gpu.index} has MIG mode {mode} and no pool in site.yaml takes it. "
        f"Add a pool with `mig: {str(gpu.mig).lower()}`."
    )


def _names(pool: Pool, gpu: Gpu) -> bool:
    return gpu.uuid in pool.gpus or gpu.index in pool.gpus or str(gpu.index) in pool.gpus


def _wrong_mode(gpu: Gpu, pool: Pool) -> str:
    want, switch = ("on", 1) if pool.mig else ("off", 0)
    return (
        f"Pool {pool.name} wants MIG mode {want} on GPU {gpu.index}, where it is "
        f"{'on' if gpu.mig else 'off'}. "
        f"When nothing runs on it: `nvidia-smi -i {gpu.index} -mig {switch}` "
        "(cards before Hopper also need a reset), or correct the pool in site.yaml."
    )


def may_use(rule: str | tuple[str, ...], groups: frozenset[str]) -> bool:
    """Whether "everyone", or one of the person's groups, is named."""
    return rule == EVERYONE or (not isinstance(rule, str) and bool(groups.intersection(rule)))


def restricted(pools: Sequence[Pool]) -> bool:
    return any(pool.groups != EVERYONE for pool in pools)


def request_of(
    flavor_id: str,
    flavor: Flavor,
    pools: Sequence[Pool],
    *,
    groups: frozenset[str] | None = None,
    only: frozenset[str] | None = None,
) -> Request | None:
    """What the allocator is asked for, or None for a CPU flavor.

    Only pools that could serve this kind of device: a waiting lease closes its pools to later ones.
    Pools are those of the flavor that the person's `groups` may use, or exactly `only` (the names that
    a lease was asked with).
    """
    if flavor.gpu is None:
        return None
    want = flavor.gpu
    allowed = [
        pool
        for pool in pools
        if (pool.mig if want.kind == "slice" else not pool.mig or pool.full_is_largest_profile)
        and (pool.flavors == "all" or flavor_id in pool.flavors)
        and (groups is None or may_use(pool.groups, groups))
        and (only is None or pool.name in only)
    ]
    return request_for(
        want.kind,
        want.memory_gb,
        want.compute_slices,
        want.count,
        frozenset(pool.name for pool in allowed),
        frozenset(pool.name for pool in allowed if pool.mig and pool.full_is_largest_profile),
    )
