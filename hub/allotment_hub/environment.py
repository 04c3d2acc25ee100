"""environment.yaml: what one image holds, written beside its Dockerfile."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

__all__ = ["Environment"]


class Environment(BaseModel):
    """The whole file.

    `packages` are the names that people are shown; their versions are read from the built image.
    `base` is the environment that this one is built upon. `index` is an extra package index a variant.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    description: str = ""
    packages: tuple[str, ...] = ()
    base: str | None = None
    index: dict[Literal["cpu", "cuda"], str] = {}
