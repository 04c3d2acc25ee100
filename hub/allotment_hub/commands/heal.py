"""`allot heal`: lets a GPU that was marked out of order be used again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer
from allotment.console import DataDir, fail
from allotment.errors import AllotmentError
from allotment_spawner.core.errors import AgentUnavailable, Refusal
from allotment_spawner.core.inventory import Gpu, NodeInventory
from allotment_spawner.gpu.agent_client import UnixAgent

from allotment_hub.commands.installation import paths_of, polite, runtime_of
from allotment_hub.host.errors import HostError

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(heal)


def heal(
    gpu: Annotated[str, typer.Argument(help="Index or UUID of a GPU, as in `allot gpus`.", metavar="GPU")],
    data_dir: DataDir = None,
) -> None:
    """Use a GPU again that hung or failed, once its cause is mended."""
    with polite():
        paths = paths_of(data_dir)
        agent = UnixAgent(socket_path=Path(runtime_of(paths).agent_socket))
        try:
            healed = asyncio.run(_heal(agent, gpu))
        except AgentUnavailable:
            raise HostError(
                f"The GPU agent does not answer; ./deploy/up starts it (log: {paths.logs / 'agent.log'})."
            ) from None
        except Refusal as refusal:
            raise HostError(f"{refusal.sentence} {refusal.next_step}") from refusal
        if healed.problem is None:
            typer.echo(f"GPU {healed.index} ({healed.uuid}) is in use again.")
            return
        raise fail(AllotmentError(f"GPU {healed.index} is still out of order: {healed.problem}.", ""))


async def _heal(agent: UnixAgent, name: str) -> Gpu:
    """Clear the mark, then look: the inventory's call is what shows whether the GPU answers."""
    found = _named(await agent.inventory(), name)
    await agent.heal(found.uuid)
    return _named(await agent.inventory(), found.uuid)


def _named(inventory: NodeInventory, name: str) -> Gpu:
    for gpu in inventory.gpus:
        if name in (gpu.uuid, str(gpu.index)):
            return gpu
    known = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in inventory.gpus) or "none"
    raise HostError(f"There is no GPU {name} here; these are: {known}.")
