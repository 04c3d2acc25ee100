"""The machine as of now, derived once per change and shared by everybody who asks."""

from __future__ import annotations

from allotment_spawner.core.demand import Demand
from allotment_spawner.core.snapshot import Snapshot

from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.machine import Machine, Sight, put_together
from allotment_hub.broker.services.observe import Observations
from allotment_hub.broker.services.requirements import Card, Hardware
from allotment_hub.broker.store.records import Cut
from allotment_hub.broker.store.store import Store
from allotment_hub.site import Site

__all__ = ["Situation"]

_RECENT = 200


class Situation:
    """Caches `put_together` by the versions of book and observations. `cuts` mirrors the table of
    slices that we made: written to the database first, here after."""

    def __init__(self, *, site: Site, store: Store, book: Book, observations: Observations) -> None:
        self._site = site
        self._store = store
        self._book = book
        self._seen = observations
        self.cuts: dict[tuple[str, str, int], Cut] = {}
        self.making: set[str] = set()
        """GPUs whose declared layout is being made right now."""
        self._cuts_version = 0
        self._key: tuple[int, int, int] | None = None
        self._machine = Machine((), Snapshot(()))
        self._hardware = Hardware(None, ())
        self._hardware_of: Machine | None = None
        self._profiles: list[str] = []
        self._demand = Demand.uniform()

    async def load(self) -> None:
        cuts, self._profiles = await self._store.read(lambda tx: (tx.cuts(), tx.recent_profiles(_RECENT)))
        for cut in cuts:
            self.cuts[cut.gpu_uuid, cut.profile, cut.start] = cut
        self._weigh()

    @property
    def known(self) -> bool:
        """Whether the agent ever answered."""
        return self._seen.inventory is not None

    @property
    def unsettled(self) -> bool:
        """Whether a GPU is left alone for a moment (changing it just failed) or has its layout made."""
        return bool(self.making or self._seen.troubles())

    @property
    def boot_id(self) -> str | None:
        return None if self._seen.inventory is None else self._seen.inventory.boot_id

    @property
    def hardware(self) -> Hardware:
        """Driver and the kinds of cards in each pool, as far as they are known."""
        machine, inventory = self.machine(), self._seen.inventory
        if machine is not self._hardware_of:
            cards = {
                Card(facts.pool.name, facts.gpu.model, facts.gpu.compute_capability): None
                for facts in machine.gpus
                if facts.pool is not None
            }
            driver = None if inventory is None else inventory.driver_version
            self._hardware, self._hardware_of = Hardware(driver, tuple(cards)), machine
        return self._hardware

    @property
    def demand(self) -> Demand:
        return self._demand

    def granted(self, profiles: list[str]) -> None:
        """Remember what was asked for; the allocator keeps room for what people lately took."""
        if profiles:
            self._profiles = [*profiles, *self._profiles][:_RECENT]
            self._weigh()

    def _weigh(self) -> None:
        counts: dict[str, float] = {}
        for name in self._profiles:
            counts[name] = counts.get(name, 0.0) + 1.0
        self._demand = Demand.from_recent(counts) if counts else Demand.uniform()

    def note_cuts(self, *cuts: Cut) -> None:
        for cut in cuts:
            self.cuts[cut.gpu_uuid, cut.profile, cut.start] = cut
        self._cuts_version += 1

    def forget_cuts(self, *keys: tuple[str, str, int]) -> None:
        for key in keys:
            self.cuts.pop(key, None)
        self._cuts_version += 1

    def machine(self) -> Machine:
        inventory = self._seen.inventory
        if inventory is None:
            return self._machine
        troubles = self._seen.troubles()
        key = (self._book.version, self._seen.version, self._cuts_version)
        if key != self._key:
            self._machine = put_together(
                Sight(
                    inventory=inventory,
                    pools=self._site.pools,
                    holders=self._book.holders(),
                    ours={key for key, cut in self.cuts.items() if cut.boot_id == inventory.boot_id},
                    workloads=self._seen.workloads,
                    strays=self._seen.strays,
                    troubles=troubles,
                )
            )
            self._key = key
        return self._machine
