"""The broker's view of the agent: typed verbs, each with a deadline."""

from __future__ import annotations

from typing import Protocol

from allotment_spawner.core.inventory import NodeInventory, Slice
from allotment_spawner.core.samples import NodeSamples

__all__ = ["Agent"]


class Agent(Protocol):
    """Verbs of one node's agent.

    Every verb raises `AgentUnavailable` on a missed deadline or a dead socket (unknown is not gone)
    and `DeviceBusy` when hardware refuses because of an instance or a process in the way;
    `FlavorUnavailable` when the node has no such GPU, profile or placement.
    """

    async def inventory(self) -> NodeInventory:
        """GPUs, slices, processes, boot id, as fresh as the hardware answers."""

    async def samples(self) -> NodeSamples:
        """How hard every GPU and slice works now; a GPU that does not answer is in `unread`.

        Never keeps a change of slices waiting for more than one GPU's reading.
        """

    async def ensure_slice(self, gpu_uuid: str, profile: str, start: int) -> Slice:
        """Make this slice, or return it when exactly it exists (a foreign one becomes ours: adopted).

        Its CDI entry is written. Idempotent.
        """

    async def destroy_slice(self, gpu_uuid: str, profile: str, start: int) -> None:
        """Remove this slice and its CDI entry; gone already is no error.

        `DeviceBusy` if it is in use, or not ours.
        """
