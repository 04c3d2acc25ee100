"""environment.yaml: what one image holds, written beside its Dockerfile."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

__all__ = ["Environment"]


class Environment(BaseModel):
    """The whole file. `packages` maps a name to its version, as shown to people."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    description: str = ""
    packages: dict[str, str] = {}
    variants: tuple[Literal["cpu", "cuda"], ...] = ("cpu",)
    local: bool = False
    """Whether the local engine can offer it from the installation's own environment."""
