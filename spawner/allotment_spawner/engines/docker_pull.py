"""Bringing an image to this machine: what the engine tells while it pulls, added up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import docker
from docker.errors import APIError, DockerException
from requests.exceptions import RequestException

__all__ = ["Layer", "PatientClient", "PullFailed", "PullProgress", "in_bytes", "pull_image"]

_SILENCE_S: Final = 300.0
"""The engine tells of every half megabyte; a registry that gives nothing for this long gives nothing more."""
_DONE: Final = frozenset({"Already exists", "Pull complete"})
_LOADED: Final = _DONE | {"Download complete", "Verifying Checksum", "Extracting"}
_LAYER: Final = _LOADED | {"Pulling fs layer", "Waiting", "Downloading", "Retrying"}


class PullFailed(Exception):
    """Why the image did not come, in the engine's or the registry's words."""


class PatientClient(docker.APIClient):  # type: ignore[misc]
    """docker-py pulls without any limit of time; this one gives up on a registry that falls silent."""

    def post(self, url: str, data: Any = None, json: Any = None, **kwargs: Any) -> Any:
        if kwargs.get("timeout", 0) is None:
            kwargs["timeout"] = (self.timeout, _SILENCE_S)
        return super().post(url, data=data, json=json, **kwargs)


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer on its way: `got_bytes` of `total_bytes` compressed bytes (None: not told yet)."""

    status: str
    got_bytes: int = 0
    total_bytes: int | None = None

    @property
    def loaded(self) -> bool:
        return self.status in _LOADED

    @property
    def done(self) -> bool:
        return self.status in _DONE


class PullProgress:
    """Adds the engine's events up."""

    def __init__(self) -> None:
        self.layers: dict[str, Layer] = {}

    def feed(self, event: Mapping[str, Any]) -> None:
        """One line of the engine's answer. Raises `PullFailed` for an error in it."""
        if "error" in event:
            raise PullFailed(str(event["error"]))
        name, status = event.get("id"), str(event.get("status", ""))
        if not isinstance(name, str) or not status.startswith(tuple(_LAYER)):
            return
        status = "Retrying" if status.startswith("Retrying") else status
        old = self.layers.get(name, Layer(status))
        detail = event.get("progressDetail") or {}
        total, got = old.total_bytes, old.got_bytes
        if status == "Downloading":
            total, got = detail.get("total") or total, int(detail.get("current") or got)
        elif status in _LOADED:
            # small ones are there before any byte is told; what is there already costs nothing
            total = total or 0
            got = total
        self.layers[name] = Layer(status, got, total)

    @property
    def got_bytes(self) -> int:
        return sum(layer.got_bytes for layer in self.layers.values())

    @property
    def total_bytes(self) -> int | None:
        """None until the engine has told the size of every layer."""
        totals = [layer.total_bytes for layer in self.layers.values()]
        return None if None in totals or not totals else sum(total or 0 for total in totals)

    @property
    def unpacking(self) -> bool:
        """Everything is here and is being written out."""
        return bool(self.layers) and all(layer.loaded for layer in self.layers.values())

    @property
    def sentence(self) -> str:
        """For the waiting page, which shows the bytes beside it: "Fetching the image: 34 %"."""
        if self.unpacking:
            done = sum(layer.done for layer in self.layers.values())
            return f"Unpacking the image: {done} of {len(self.layers)} layers"
        if not self.got_bytes:
            return "Fetching the image"
        if self.total_bytes is None:
            return f"Fetching the image: {in_bytes(self.got_bytes)} so far"
        return f"Fetching the image: {min(100 * self.got_bytes // self.total_bytes, 100)} %"


def pull_image(client: Any, reference: str, tell: Callable[[PullProgress], None]) -> None:
    """Pull `reference` (a tag or repository@digest), in this thread. Raises `PullFailed`."""
    progress = PullProgress()
    try:
        for event in client.pull(reference, stream=True, decode=True):
            progress.feed(event)
            tell(progress)
    except APIError as error:
        raise PullFailed(str(error.explanation or error)) from error
    except (DockerException, RequestException, OSError, ValueError) as error:
        raise PullFailed(str(error) or type(error).__name__) from error


def in_bytes(count: int) -> str:
    """ "1.2 GB": powers of ten, as registries and disks count."""
    for size, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
