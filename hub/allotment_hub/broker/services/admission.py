"""Who may start what: the rules before the queue, one typed refusal each."""

from __future__ import annotations

from collections.abc import Callable

from allotment_spawner.core.allocator import NoRoom, capacity, place
from allotment_spawner.core.demand import Demand
from allotment_spawner.core.errors import (
    EnvironmentNotAllowed,
    EnvironmentUnavailable,
    FlavorNotAllowed,
    FlavorUnavailable,
    LocalEngineClosed,
    Refusal,
    TooManySessions,
    UnknownEnvironment,
    UnknownFlavor,
)
from allotment_spawner.core.request import Request

from allotment_hub.broker.services.environments import Environments
from allotment_hub.broker.services.groups import groups_of
from allotment_hub.broker.services.pools import EVERYONE, may_use, request_of, restricted
from allotment_hub.broker.services.ports import HubView
from allotment_hub.broker.services.requirements import fitting
from allotment_hub.broker.services.situation import Situation
from allotment_hub.broker.store.images import Image
from allotment_hub.catalog import Catalog, Flavor
from allotment_hub.runtime import Runtime
from allotment_hub.site import Site

__all__ = ["Admission"]


class Admission:
    """Asks the hub for a person's groups only where a rule names groups."""

    def __init__(
        self,
        *,
        site: Site,
        catalog: Catalog,
        runtime: Runtime,
        environments: Environments,
        hub: HubView,
        situation: Situation,
        need_groups: Callable[[], bool],
    ) -> None:
        """`need_groups`: whether a part of a start decides by them now."""
        self._site = site
        self._catalog = catalog
        self._runtime = runtime
        self._environments = environments
        self._hub = hub
        self._situation = situation
        rules = [flavor.groups for flavor in catalog.flavors.values()]
        rules += [environment.groups for environment in catalog.environments.values()]
        self._need_groups = need_groups
        self._by_group = restricted(site.pools) or any(rule != EVERYONE for rule in rules)

    async def groups_of(self, user: str) -> frozenset[str]:
        """The person's groups, empty where no rule needs them. Raises `BrokerUnavailable`."""
        needed = self._by_group or self._need_groups()
        return await groups_of(self._hub, user) if needed else frozenset()

    def names_exist(self, flavor_id: str, environment_id: str) -> Flavor:
        flavor = self._catalog.flavors.get(flavor_id)
        if flavor is None:
            raise UnknownFlavor(
                f"There is no size called {flavor_id} here.",
                "Choose one of: " + ", ".join(self._catalog.flavors) + ".",
            )
        if self._environments.rule(environment_id) is None:
            raise UnknownEnvironment(
                f"There is no environment called {environment_id} here.",
                "Choose one of: " + ", ".join(self._environments.names()) + ".",
            )
        return flavor

    def check(
        self,
        user: str,
        flavor_id: str,
        environment_id: str,
        groups: frozenset[str],
        version: str | None = None,
    ) -> Request | None:
        """Every rule that does not depend on the person's other sessions; the allocator's request."""
        self.names_exist(flavor_id, environment_id)
        self.check_account(user)
        image = self.check_environment(environment_id, groups, version)
        return self.check_pair(flavor_id, environment_id, groups, image)

    def check_pair(
        self, flavor_id: str, environment_id: str, groups: frozenset[str], image: Image | None
    ) -> Request | None:
        """Whether the two go together, by the catalogue's rules and on this hardware."""
        self._check_rule(flavor_id, environment_id)
        request = self.check_flavor(flavor_id, groups)
        if request is None or image is None:
            return request
        return self._fitting(request, environment_id, image)

    def _check_rule(self, flavor_id: str, environment_id: str) -> None:
        flavor = self._catalog.flavors[flavor_id]
        if flavor.environments != "all" and environment_id not in flavor.environments:
            raise EnvironmentNotAllowed(
                f"{environment_id} cannot be used with {flavor.title}.",
                "Choose another environment or another size.",
            )

    def _fitting(self, request: Request, environment_id: str, image: Image) -> Request:
        name = f"{self._environments.offer(environment_id).title} {image.label}".strip()
        fit = fitting(image.requires, request, self._situation.hardware, name=name)
        if isinstance(fit, str):
            raise EnvironmentUnavailable(fit, "Choose another environment or version, or a size without GPU.")
        return fit

    def why_not_together(
        self, flavor_id: str, environment_id: str, groups: frozenset[str], image: Image | None
    ) -> str | None:
        """For the form: why these two do not go together, whatever each of them lacks by itself."""
        flavor = self._catalog.flavors[flavor_id]
        request = request_of(flavor_id, flavor, self._site.pools, groups=groups)
        try:
            self._check_rule(flavor_id, environment_id)
            if request is not None and image is not None:
                self._fitting(request, environment_id, image)
        except Refusal as refusal:
            return refusal.sentence
        return None

    def check_account(self, user: str) -> None:
        local = self._site.local
        if self._runtime.engine != "local" or self._runtime.trust_users or local.trust_users:
            return
        if user not in local.open_accounts:
            raise LocalEngineClosed(
                "Sessions run here as plain processes without a wall between people, "
                "so only the accounts of the person who installed it can start them.",
                "Ask the operator to use the Docker engine, or to start with --trust-users.",
            )

    def check_environment(
        self, environment_id: str, groups: frozenset[str], version: str | None = None
    ) -> Image | None:
        """Its image; None on the local engine. Raises the refusal of a rule or of a version."""
        rule = self._environments.rule(environment_id)
        if rule is None or not may_use(rule.groups, groups):
            raise EnvironmentNotAllowed(
                f"Your account may not use the environment {environment_id}.",
                "Choose another environment, or ask the operator.",
            )
        return self._environments.choose(environment_id, version)

    def check_flavor(self, flavor_id: str, groups: frozenset[str]) -> Request | None:
        flavor = self._catalog.flavors[flavor_id]
        if not may_use(flavor.groups, groups):
            raise FlavorNotAllowed(
                f"Your account may not use {flavor.title}.", "Choose another size, or ask the operator."
            )
        request = request_of(flavor_id, flavor, self._site.pools, groups=groups)
        if request is not None and self._situation.known:
            never = self._never(request)
            if never is not None:
                raise FlavorUnavailable(never, "Choose another size.")
        return request

    def _never(self, request: Request) -> str | None:
        """Why no waiting would help; None while waiting could."""
        snapshot = self._situation.machine().snapshot
        _, total = capacity(request, snapshot)
        if total:
            return None
        answer = place(request, snapshot, Demand.uniform())
        if not isinstance(answer, NoRoom):
            return None
        passing = not answer.never or answer.rule == "layout_without_it"
        if passing and self._situation.unsettled:
            return None
        return answer.sentence

    def check_count(self, live: int) -> None:
        limit = self._site.policies.sessions_per_person
        if live >= limit:
            what = "one session" if limit == 1 else f"{limit} sessions"
            raise TooManySessions(
                f"You have {live} live sessions, and a person may have {what} here.",
                "Stop one of them first.",
            )

    def why_not(self, user: str, flavor_id: str, groups: frozenset[str]) -> str | None:
        """For the form: why this flavor can never start for this person now."""
        try:
            self.check_account(user)
            self.check_flavor(flavor_id, groups)
        except LocalEngineClosed as refusal:
            return f"{refusal.sentence} {refusal.next_step}"
        except Refusal as refusal:
            return refusal.sentence
        return None

    def why_not_environment(self, environment_id: str, groups: frozenset[str]) -> str | None:
        """For the form: why this environment can never start for this person now."""
        try:
            self.check_environment(environment_id, groups)
        except Refusal as refusal:
            return f"{refusal.sentence} {refusal.next_step}"
        return None
