"""What a person is shown of an environment: its versions, and which sizes it does not go with."""

from __future__ import annotations

from typing import Final

from allotment_spawner.wire import EnvironmentView, VersionView

from allotment_hub.broker.services.admission import Admission
from allotment_hub.broker.services.environments import Environments, Offer
from allotment_hub.broker.services.image_book import ImageBook
from allotment_hub.broker.store.images import Image
from allotment_hub.catalog import Catalog

__all__ = ["EnvironmentViews"]

_MOST_VERSIONS: Final = 20
_CPU_BUILDS: Final = "Its packages are CPU builds: they leave the GPU unused."


class EnvironmentViews:
    """From memory only."""

    def __init__(
        self, *, catalog: Catalog, environments: Environments, images: ImageBook, admission: Admission
    ) -> None:
        self._catalog = catalog
        self._environments = environments
        self._images = images
        self._admission = admission

    def all(self, groups: frozenset[str]) -> list[EnvironmentView]:
        return [self._view(name, groups) for name in self._environments.names()]

    def _view(self, name: str, groups: frozenset[str]) -> EnvironmentView:
        offer = self._environments.offer(name)
        reason = self._admission.why_not_environment(name, groups)
        image = offer.image
        requires = {} if image is None else image.requires
        return EnvironmentView(
            id=name,
            title=offer.title,
            description=offer.description,
            packages=offer.packages,
            image=None if image is None else image.reference,
            available=reason is None,
            reason=reason,
            versions=self._versions(name) if self._environments.on_images else (),
            minimum_driver=requires.get("minimum_driver"),
            minimum_compute_capability=requires.get("minimum_compute_capability"),
            size_bytes=None if image is None else image.size_bytes,
            reasons=self._reasons(name, groups, offer) if reason is None else {},
            notes=self._notes(offer),
        )

    def _versions(self, name: str) -> tuple[VersionView, ...]:
        offered = self._images.offered(name)
        shown = [image for image in self._images.of(name) if image.removing_at is None][:_MOST_VERSIONS]
        if offered is not None and offered not in shown:
            shown.append(offered)
        return tuple(self._version(image, offered) for image in shown)

    def _version(self, image: Image, offered: Image | None) -> VersionView:
        instead = None if image.startable else self._images.successor(image)
        return VersionView.model_validate(
            {
                "version": image.version,
                "label": image.label,
                "digest": image.digest,
                "state": "offered" if image == offered else image.state,
                "size_bytes": image.size_bytes,
                "made_at": image.made_at,
                "replaced_by": None if instead is None else instead.version,
                "packages": image.packages,
            }
        )

    def _reasons(self, name: str, groups: frozenset[str], offer: Offer) -> dict[str, str]:
        """Only what is between the two; what a flavor itself lacks is said at the flavor."""
        found = {
            flavor_id: self._admission.why_not_together(flavor_id, name, groups, offer.image)
            for flavor_id in self._catalog.flavors
        }
        return {flavor_id: why for flavor_id, why in found.items() if why is not None}

    def _notes(self, offer: Offer) -> dict[str, str]:
        if offer.image is None or offer.image.requires.get("variant") != "cpu":
            return {}
        return {one: _CPU_BUILDS for one, flavor in self._catalog.flavors.items() if flavor.gpu is not None}
