"""What people can pick: catalog.yaml's environments, and those built upon them, each with its images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from allotment_spawner.core.errors import EnvironmentUnavailable, UnknownVersion
from allotment_spawner.core.lease import LeaseState
from allotment_spawner.wire import LeaseRequest

from allotment_hub.broker.services.book import Book
from allotment_hub.broker.services.image_book import ImageBook
from allotment_hub.broker.store.images import REMOVED, RETIRED, Image
from allotment_hub.broker.store.records import Lease
from allotment_hub.catalog import Catalog, EnvironmentRule
from allotment_hub.runtime import Runtime

__all__ = ["Environments", "Offer"]


@dataclass(frozen=True, slots=True)
class Offer:
    """One environment as it is offered; `image` None on the local engine, or where it cannot be used."""

    title: str
    description: str
    packages: dict[str, str]
    image: Image | None
    available: bool
    reason: str | None


class Environments:
    """Looks up in memory only. Refusals name the version and what to take in its place."""

    def __init__(self, *, catalog: Catalog, runtime: Runtime, images: ImageBook, book: Book) -> None:
        self._catalog = catalog
        self._runtime = runtime
        self._images = images
        self._book = book

    @property
    def on_images(self) -> bool:
        """Whether sessions run from images at all."""
        return self._runtime.engine == "docker"

    def names(self) -> list[str]:
        """In the catalogue's order, then those that follow the rule of one of these."""
        listed = list(self._catalog.environments)
        return listed + sorted(
            name
            for name, base in self._images.based_elsewhere().items()
            if name not in self._catalog.environments and base in self._catalog.environments
        )

    def rule(self, name: str) -> EnvironmentRule | None:
        """Who may use it; None for a name that there is not."""
        found = self._catalog.environments.get(name)
        if found is None:
            return self._catalog.environments.get(self._images.based_elsewhere().get(name, ""))
        return found

    def offer(self, name: str) -> Offer:
        seed = self._runtime.environments.get(name)
        image = self._images.offered(name) if self.on_images else None
        newest = next(iter(self._images.of(name)), None)
        title = seed.title if seed is not None else newest.title if newest is not None else name
        text = seed.description if seed is not None else newest.description if newest is not None else ""
        available = image is not None or (not self.on_images and seed is not None and seed.available)
        packages = image.packages if image is not None else seed.packages if seed is not None else {}
        reason = None if available else self._reason(name, title)
        return Offer(title, text, dict(packages), image, available, reason)

    def _reason(self, name: str, title: str) -> str:
        seed = self._runtime.environments.get(name)
        if self.on_images and any(image.state == RETIRED for image in self._images.of(name)):
            return f"Every version of {title} is retired. Ask the operator to build or pull a newer one."
        if seed is not None and seed.reason is not None:
            return seed.reason
        return f"The environment {name} is not installed on this machine."

    def wanted_version(self, body: LeaseRequest) -> str | None:
        """The version that is named; else the one that this server waits with already, so that a newer
        image in between costs nobody their place."""
        if body.version is not None:
            return body.version
        waiting = self._book.live_of(body.user, body.server)
        if waiting is None or waiting.state is not LeaseState.QUEUED:
            return None
        version = (waiting.wants or {}).get("version")
        if waiting.environment != body.environment or version is None:
            return None
        image = self._images.named(body.environment, version)
        return image.version if image is not None and image.startable else None

    def choose(self, name: str, version: str | None) -> Image | None:
        """The image of a start; None on the local engine. Raises `UnknownVersion` or the like."""
        offer = self.offer(name)
        if version is None or not (self.on_images or offer.available):
            if not offer.available:
                raise EnvironmentUnavailable(
                    offer.reason or f"The environment {name} is not installed on this machine.",
                    "Choose another environment, or ask the operator to build it.",
                )
            return offer.image
        image = self._images.named(name, version) if self.on_images else None
        if image is None:
            raise UnknownVersion(
                f"There is no version {version} of {offer.title} here.", self._instead(offer.image)
            )
        self._check(image, offer.title)
        return image

    def _check(self, image: Image, title: str) -> None:
        if image.startable:
            return
        instead = self._images.successor(image)
        what = f"Version {image.version} ({image.label}) of {title}"
        by = "" if instead is None else f"; {instead.version} ({instead.label}) replaces it"
        if image.state == RETIRED:
            raise EnvironmentUnavailable(f"{what} is retired{by}.", self._instead(instead))
        gone = "was removed from this machine" if image.state == REMOVED else "is being removed"
        raise EnvironmentUnavailable(f"{what} {gone}{by}.", self._instead(instead))

    @staticmethod
    def _instead(image: Image | None) -> str:
        if image is None:
            return "Choose another environment, or ask the operator to build it."
        return f"Choose version {image.version} ({image.label}), or name none to get the one offered now."

    def still_there(self, lease: Lease) -> bool:
        """Whether what a waiting lease asked for can still be started."""
        if self.rule(lease.environment) is None:
            return False
        digest = (lease.wants or {}).get("digest")
        if digest is None:
            return self.offer(lease.environment).available
        return self._images.get(digest) is not None

    def of_lease(self, lease: Lease) -> Image | None:
        """The image that was decided at the request, else the one offered now."""
        wants: dict[str, Any] = lease.wants or {}
        if not self.on_images:
            return None
        found = self._images.get(wants["digest"]) if "digest" in wants else None
        return found or self._images.offered(lease.environment)
