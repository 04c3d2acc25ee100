"""The part "datasets" of a start: who may have which, the wait until all are here, and where they are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from allotment_spawner.core.errors import DatasetUnavailable, Refusal, refusal_from_code
from allotment_spawner.wire import Launch, MountSpec, Work

from allotment_hub.broker.services.dataset_fetching import DatasetFetching
from allotment_hub.broker.services.dataset_shelf import DatasetShelf, no_dataset, wanted
from allotment_hub.broker.services.extras import Ask
from allotment_hub.broker.services.pools import may_use
from allotment_hub.broker.store.datasets import READY
from allotment_hub.broker.store.records import Lease

__all__ = ["INSIDE", "DatasetPart", "not_here"]

INSIDE: Final = "/datasets"


class DatasetPart:
    """Implements `Extra`. `in_containers`: False on an engine that cannot mount them."""

    needs_groups = False

    def __init__(
        self,
        *,
        in_containers: bool,
        shelf: DatasetShelf,
        fetching: DatasetFetching,
        groups_of: Callable[[str], Awaitable[frozenset[str]]],
    ) -> None:
        """`groups_of` is asked only about datasets that name groups."""
        self._in_containers = in_containers
        self._shelf = shelf
        self._fetching = fetching
        self._groups_of = groups_of

    async def check(self, ask: Ask) -> Mapping[str, Any]:
        names = tuple(dict.fromkeys(ask.body.datasets))
        if not names:
            return {}
        for name in names:
            await self._may_ask(ask.body.user, name)
        if not self._in_containers:
            raise not_here()
        if self._shelf.broken is not None:
            raise self._shelf.broken
        for name in names:
            self._fetching.want(name)
            if self._shelf.ready(name):
                await self._fetching.used(name)
        return {"datasets": list(names)}

    async def _may_ask(self, user: str, name: str) -> None:
        """Another group's dataset and one that never was are told apart by nobody."""
        row = self._shelf.get(name)
        if row.groups is not None and not may_use(row.groups, await self._groups_of(user)):
            raise no_dataset(name)

    def ready(self, lease: Lease) -> bool:
        missing = [name for name in wanted(lease) if not self._shelf.ready(name)]
        for name in missing:
            if self._shelf.failed(name) is None and self._shelf.broken is None:
                self._fetching.want(name)
        return not missing

    def problem(self, lease: Lease) -> Refusal | None:
        for name in wanted(lease):
            if self._shelf.broken is not None:
                return self._shelf.broken
            row = self._shelf.find(name)
            if row is None:
                return DatasetUnavailable(
                    f"The dataset {name} was removed while the start waited.", "Start without it."
                )
            if self._shelf.failed(name) is not None and row.problem is not None:
                told = row.problem
                return refusal_from_code(
                    told["code"], f"The dataset {name} is not here: {told['sentence']}", told["next_step"]
                )
        return None

    def complete(self, lease: Lease, launch: Launch) -> Launch:
        mounts = tuple(self._mount(name) for name in wanted(lease))
        return launch.model_copy(update={"mounts": (*launch.mounts, *mounts)}) if mounts else launch

    def _mount(self, name: str) -> MountSpec:
        """What the lease waits for cannot have left: eviction leaves alone what a lease in the book names."""
        row = self._shelf.get(name)
        assert row.state == READY, f"granted without its dataset {name}"
        return MountSpec(source=str(self._shelf.folder(row)), target=f"{INSIDE}/{name}", read_only=True)

    def waits_for(self, lease: Lease) -> Work | None:
        """The first of its datasets that is not here yet."""
        missing = next((name for name in wanted(lease) if not self._shelf.ready(name)), None)
        return None if missing is None else self._shelf.work(missing)


def not_here() -> DatasetUnavailable:
    return DatasetUnavailable(
        "Datasets are mounted into containers, and sessions run here as plain processes.",
        "Start without datasets, or ask the operator for the Docker engine.",
    )
