"""The image of a session: decided at the request, kept through the queue, written down at the grant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allotment_spawner.core.errors import EnvironmentUnavailable, Refusal
from allotment_spawner.wire import Launch

from allotment_hub.broker.services.environments import Environments
from allotment_hub.broker.services.extras import Ask
from allotment_hub.broker.store.images import REMOVED
from allotment_hub.broker.store.records import Lease

__all__ = ["ImagePart"]


class ImagePart:
    """An `Extra`. A lease that waits keeps its image even if that is retired meanwhile; one that is being
    removed is granted to nobody."""

    needs_groups = False

    def __init__(self, *, environments: Environments) -> None:
        self._environments = environments

    async def check(self, ask: Ask) -> Mapping[str, Any]:
        wanted = self._environments.wanted_version(ask.body)
        image = self._environments.choose(ask.body.environment, wanted)
        return {} if image is None else {"version": image.version, "digest": image.digest}

    def ready(self, lease: Lease) -> bool:
        return self.problem(lease) is None

    def problem(self, lease: Lease) -> Refusal | None:
        image = self._environments.of_lease(lease)
        if image is None or (image.state != REMOVED and image.removing_at is None):
            return None
        return EnvironmentUnavailable(
            f"The image of {image.title} that this start waited with was removed from this machine.",
            "Start again: it takes the version that is offered now.",
        )

    def complete(self, lease: Lease, launch: Launch) -> Launch:
        image = self._environments.of_lease(lease)
        if image is None:
            return launch
        return launch.model_copy(
            update={
                "image": image.reference,
                "image_digest": image.digest,
                "pull": image.source,
                "env": {**launch.env, "ALLOTMENT_VERSION": image.version},
            }
        )
