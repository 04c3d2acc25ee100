"""The parts of a broker that mind homes, wired to each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from allotment_spawner.disk.roots import split_template
from allotment_spawner.engines.home_gauge import HomeGauge
from allotment_spawner.launch.container import home_mount

from allotment_hub.broker.disk_parts import Room
from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.extras import Extra
from allotment_hub.broker.services.home_part import HomeFolders, HomePart, QuotaGauge
from allotment_hub.broker.services.homes import Homes
from allotment_hub.broker.services.owners import Owners
from allotment_hub.broker.store.store import Store
from allotment_hub.runtime import Runtime
from allotment_hub.site import Site

__all__ = ["HomeParts"]

_GIB = 2**30


@dataclass
class HomeParts:
    """`gauge` None: homes cannot be measured. `room` None, or an agent that is not root: it makes none."""

    site: Site
    runtime: Runtime
    room: Room | None
    gauge: HomeGauge | None
    store: Store
    book: Book
    clock: Callable[[], datetime]

    @cached_property
    def owners(self) -> Owners:
        return Owners(rule=self.site.homes.rule)

    @cached_property
    def homes(self) -> Homes:
        gauge = self.gauge
        if gauge is not None and self._folders is not None:
            gauge = QuotaGauge(folders=self._folders, measured=gauge)
        return Homes(
            settings=self.site.homes, store=self.store, book=self.book, gauge=gauge, clock=self.clock
        )

    @cached_property
    def extra(self) -> tuple[Extra, ...]:
        """What a start asks of homes; on the local engine nothing."""
        if self.runtime.engine != "docker":
            return ()
        return (HomePart(owners=self.owners, folders=self._folders, limited=self.homes.limited),)

    @cached_property
    def _folders(self) -> HomeFolders | None:
        template = self.site.docker.home
        room = self.room
        # an emptier is there only where the agent is not root, and could give no home to its owner
        if template == "volume" or room is None or room.emptier is not None:
            return None
        quota = self.site.homes.quota_gib
        return HomeFolders(
            folders=room.folders,
            name_of=self._name_of,
            limit_bytes=None if quota is None else int(quota * _GIB),
        )

    def _name_of(self, user: str) -> str:
        template = self.site.docker.home
        mount = home_mount(template, installation=self.runtime.installation, user=user)
        return split_template(template, mount.source)[1]
