"""Homes on a tests' own engine: run something as their owner, and end a person's account without a hub."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from allotment_hub.people.journal import Journal, Leaving
from allotment_hub.people.offboard import Homes, Offboarding
from allotment_spawner.engines.helpers import Helpers
from allotment_spawner.engines.owners import OwnerRule
from allotment_spawner.launch.container import HomeMount, Owner

__all__ = ["INSTALLATION", "AccountsInMemory", "HomesBox"]

INSTALLATION = "feedbeef"


@dataclass
class AccountsInMemory:
    """Names with an account; `ended` those whose account was removed."""

    names: set[str] = field(default_factory=set)
    ended: list[str] = field(default_factory=list)

    def exists(self, name: str) -> bool:
        return name in self.names

    def remove(self, name: str) -> None:
        self.names.remove(name)
        self.ended.append(name)


class HomesBox:
    """Volumes or folders (`template`) of `owner` on one engine; `folder` is for archives and journals."""

    def __init__(
        self,
        *,
        client: Any,
        base_url: str,
        image: str,
        folder: Path,
        template: str = "volume",
        owner: Owner | None = None,
    ) -> None:
        self._client = client
        self._image = image
        self.folder = folder
        self.owner = owner or Owner()
        self.helpers = Helpers(installation=INSTALLATION, base_url=base_url, patience_s=1)
        self.homes = Homes(
            template=template,
            installation=INSTALLATION,
            rule=OwnerRule(fixed=self.owner),
            archive=folder / "archive",
        )
        self.accounts = AccountsInMemory()
        self.settled: dict[str, str] = {}

    def run(self, user: str, script: str, *, owner: Owner | None = None) -> str:
        """What a shell prints in this person's home; AssertionError when it fails."""
        who = owner or self.owner
        home = self.homes.mount_of(user)
        made = self._client.create_container(
            self._image,
            ["sh", "-c", f"cd ~ && {script}"],
            entrypoint=[],
            user=f"{who.uid}:{who.gid}",
            environment={"HOME": home.target, "LC_ALL": "C.UTF-8"},
            host_config=self._client.create_host_config(
                network_mode="none", binds=[f"{home.source}:{home.target}"]
            ),
        )
        try:
            self._client.start(made["Id"])
            code = self._client.wait(made["Id"])["StatusCode"]
            said: str = self._client.logs(made["Id"]).decode(errors="surrogateescape")
        finally:
            self._client.remove_container(made["Id"], force=True)
        assert code == 0, (code, said)
        return said

    def exists(self, user: str) -> bool | None:
        home: HomeMount = self.homes.mount_of(user)
        return self.helpers.exists(home)

    def helpers_left(self) -> list[str]:
        found = self._client.containers(all=True, filters={"label": "allotment.helper"})
        return [str(one["Names"][0]) for one in found]

    def journal(self, user: str) -> Journal:
        return Journal(folder=self.folder / "offboard", user=user)

    def offboarding(self, user: str, **hooks: Any) -> Offboarding:
        """`hooks` are on_step, progress, sessions_of, say."""
        return Offboarding(
            accounts=self.accounts,
            helpers=self.helpers,
            homes=self.homes,
            journal=self.journal(user),
            settle=self.settled.__setitem__,
            **{"sessions_of": lambda _user: 0, "say": lambda _text: None, **hooks},
        )

    @staticmethod
    def leaving(user: str, *, archive: bool = False, to: str | None = None, erase: bool = False) -> Leaving:
        began = datetime.now(UTC).isoformat()
        return Leaving(user=user, archive=archive, hand_over=to, erase=erase, began_at=began)
