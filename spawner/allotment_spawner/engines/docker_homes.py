"""Measures homes of sessions in containers, in helper containers."""

from __future__ import annotations

from allotment_spawner.daemon_threads import DaemonThreads
from allotment_spawner.engines.helpers import Helpers
from allotment_spawner.engines.home_gauge import MEASURE_SCRIPT, HomeUsage, read_usage
from allotment_spawner.engines.owners import OwnerRule
from allotment_spawner.launch.container import home_mount
from allotment_spawner.launch.helper import HELPER_HOME, home_at

__all__ = ["DockerHomeGauge"]


class DockerHomeGauge:
    """`template` is site.yaml's `docker.home`. Two helpers at a time at most."""

    def __init__(
        self, *, installation: str, base_url: str, template: str, rule: OwnerRule, limit_s: float
    ) -> None:
        self._installation = installation
        self._helpers = Helpers(installation=installation, base_url=base_url)
        self._template = template
        self._rule = rule
        self._limit_s = limit_s
        self._threads = DaemonThreads(2, name="home-gauge")

    async def measure(self, user: str) -> HomeUsage | None:
        return await self._threads.run(lambda: self._measure(user))

    def _measure(self, user: str) -> HomeUsage | None:
        home = home_mount(self._template, installation=self._installation, user=user)
        # else the helper's mount would make it
        if self._helpers.exists(home) is False:
            return HomeUsage(used_bytes=0, files=0)
        done = self._helpers.run(
            "measure",
            user,
            argv=["sh", "-c", MEASURE_SCRIPT, "measure", str(self._limit_s), HELPER_HOME],
            owner=self._rule.account_of(user).owner,
            mounts=[home_at(home)],
            limit_s=2 * self._limit_s + 30,
        )
        return read_usage(done)
