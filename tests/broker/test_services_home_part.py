"""The part "home" of a start: who is no account is told at once; the agent makes and limits folders."""

from __future__ import annotations

import pwd
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from allotment_hub.broker.disk_parts import Room
from allotment_hub.broker.home_parts import HomeParts
from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.extras import Ask
from allotment_hub.broker.services.home_part import HomePart
from allotment_hub.broker.services.owners import Owners
from allotment_hub.broker.store.connect import sqlite_url
from allotment_hub.broker.store.store import Store
from allotment_hub.site import DockerSettings, HomeSettings, Site
from allotment_spawner.core.errors import AgentUnavailable, HomeUnavailable
from allotment_spawner.disk.base import Folder, RootName, RootState, Usage
from allotment_spawner.engines.home_gauge import HomeUsage
from allotment_spawner.engines.owners import OwnerRule, SystemAccounts
from allotment_spawner.launch.container import Owner
from allotment_spawner.wire import LeaseRequest
from allotment_testing.broker_world import BrokerWorld

GIB = 2**30


def ask(user: str = "ann") -> Ask:
    body = LeaseRequest(user=user, environment="minimal", flavor="cpu")
    return Ask(body=body, groups=frozenset(), devices=None)


@dataclass
class AgentWithHomes:
    """Makes folders in memory; `fails` is raised instead; `counts` is what a quota would count."""

    enforced: bool = True
    fails: AgentUnavailable | None = None
    counts: Usage | None = None
    made: list[tuple[str, int, int, int | None]] = field(default_factory=list)

    async def make_folder(
        self, root: RootName, name: str, *, uid: int, gid: int, mode: int, limit_bytes: int | None
    ) -> Folder:
        if self.fails is not None:
            raise self.fails
        assert (root, mode) == ("homes", 0o700)
        self.made.append((name, uid, gid, limit_bytes))
        return Folder(f"/srv/homes/{name}", True, uid, gid, limit_bytes, self.enforced, "xfs")

    async def folder_usage(self, root: RootName, name: str) -> Usage | None:
        assert root == "homes"
        return self.counts

    async def remove_folder(self, root: RootName, name: str) -> None:
        raise AssertionError("homes are never removed by the agent")

    async def list_folders(self, root: RootName) -> list[str]:
        return [name for name, *_ in self.made]

    async def folder_root(self, root: RootName) -> RootState:
        return RootState("/srv/homes", "xfs", None, 0)


class EmptierInName:
    """That there is one says that the agent is not root."""

    async def empty(self, path: str, lease_id: str, owner: Owner) -> None:
        raise AssertionError("nothing here is scratch")


@dataclass
class GaugeThatWalks:
    walked: int = 0

    async def measure(self, user: str) -> HomeUsage | None:
        self.walked += 1
        return HomeUsage(used_bytes=GIB, files=3)


def parts(
    folder: Path, agent: AgentWithHomes, *, home: str = "/srv/homes/{username}", root: bool = True
) -> HomeParts:
    world = BrokerWorld(folder)
    return HomeParts(
        site=Site(docker=DockerSettings(home=home), homes=HomeSettings(uid=2001, gid=2002, quota_gib=2)),
        runtime=world.runtime,
        room=Room(folders=agent, emptier=None if root else EmptierInName()),
        gauge=GaugeThatWalks(),
        store=Store(url=sqlite_url(folder / "broker.sqlite")),
        book=Book(),
        clock=world.clock,
    )


async def test_a_folder_is_made_limited_and_the_limit_is_known(tmp_path: Path) -> None:
    agent = AgentWithHomes()
    made = parts(tmp_path, agent)
    await made.store.open()
    [part] = made.extra
    assert await part.check(ask("a.b")) == {}
    assert agent.made == [("a_2eb", 2001, 2002, 2 * GIB)]
    home = await made.homes.of("a.b")
    assert (home.enforced, home.limit_bytes, home.used_bytes) == (True, 2 * GIB, None)
    await made.store.close()


@pytest.mark.parametrize(("home", "root"), [("volume", True), ("/srv/homes/{username}", False)])
async def test_where_the_agent_cannot_give_homes_away_it_is_not_asked(
    tmp_path: Path, home: str, root: bool
) -> None:
    agent = AgentWithHomes()
    [part] = parts(tmp_path, agent, home=home, root=root).extra
    await part.check(ask())
    assert agent.made == []


async def test_an_agent_that_does_not_answer_stops_no_start(tmp_path: Path) -> None:
    """The folder may be there already; if not, the spawner says so."""
    agent = AgentWithHomes(fails=AgentUnavailable("The agent is away.", "Wait."))
    [part] = parts(tmp_path, agent).extra
    assert await part.check(ask()) == {}


async def test_a_quotas_own_count_is_asked_first(tmp_path: Path) -> None:
    agent = AgentWithHomes(counts=Usage(5 * GIB, 77, 6 * GIB, enforced=True, watch=False))
    made = parts(tmp_path, agent)
    await made.store.open()
    home = await made.homes.measure("ann")
    assert (home.used_bytes, home.files) == (5 * GIB, 77)
    agent.counts = Usage(None, None, None, enforced=False, watch=False)
    home = await made.homes.measure("ben")
    assert (home.used_bytes, home.files) == (GIB, 3)
    await made.store.close()


def part_of(source: SystemAccounts, *, limit_s: float = 10) -> HomePart:
    async def nobody(_user: str, _enforced: bool) -> None:
        raise AssertionError("no folder, no limit")

    owners = Owners(rule=OwnerRule(kind="nss", source=source), limit_s=limit_s)
    return HomePart(owners=owners, folders=None, limited=nobody)


async def test_who_is_no_account_here_is_told_before_the_wait() -> None:
    def unknown(name: str) -> pwd.struct_passwd:
        raise KeyError(name)

    with pytest.raises(HomeUnavailable, match="knows no account 'ann'"):
        await part_of(SystemAccounts(by_name=unknown)).check(ask())


async def test_a_name_service_that_hangs_is_not_waited_for() -> None:
    release = threading.Event()

    def hangs(name: str) -> pwd.struct_passwd:
        release.wait(10)
        raise KeyError(name)

    with pytest.raises(HomeUnavailable, match="do not answer"):
        await part_of(SystemAccounts(by_name=hangs), limit_s=0.05).check(ask())
    # at the end of the process only daemons are not waited for
    assert [one.daemon for one in threading.enumerate() if one.name == "name-service"] == [True]
    release.set()
