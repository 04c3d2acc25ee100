"""environment.yaml: what one image holds, written beside its Dockerfile."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["ComputeCapability", "DriverVersion", "Environment"]

DriverVersion = Annotated[str, Field(pattern=r"^[0-9]{1,5}(\.[0-9]{1,5}){0,3}$")]
"""NVIDIA's, such as "525.60.13"."""
ComputeCapability = Annotated[str, Field(pattern=r"^[0-9]{1,2}\.[0-9]$")]
"""Such as "7.0"."""


class Environment(BaseModel):
    """The whole file.

    `packages` are the names that people are shown; their versions are read from the built image.
    `base` is the environment that this one is built upon. `index` is an extra package index a variant.
    `minimum_driver` and `minimum_compute_capability` are what the cuda variant needs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    description: str = ""
    packages: tuple[str, ...] = ()
    base: str | None = None
    minimum_driver: DriverVersion | None = None
    minimum_compute_capability: ComputeCapability | None = None
    index: dict[Literal["cpu", "cuda"], str] = {}
