"""Models of the routes about images, for operators only."""

from __future__ import annotations

from typing import Annotated, Literal

from allotment_spawner.wire import ONE_LINE, Word
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field

from allotment_hub.environment import ComputeCapability, DriverVersion

__all__ = ["ImageView", "Register", "Requires", "Retire"]

_MOST_BYTES = 2**60
_YEARS = range(1980, 3000)


def _in_reach(moment: AwareDatetime) -> AwareDatetime:
    """A time at the very end of the calendar cannot be moved to UTC."""
    if moment.year not in _YEARS:
        raise ValueError("not a year in which an image was made")
    return moment


Line = Annotated[str, Field(max_length=255, pattern=ONE_LINE)]
Prose = Annotated[
    str, Field(max_length=2000, pattern=r"^[^\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*$")
]
Moment = Annotated[AwareDatetime, AfterValidator(_in_reach)]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
Source = Annotated[str, Field(max_length=512, pattern=r"^[a-zA-Z0-9][a-zA-Z0-9._:/-]*@sha256:[0-9a-f]{64}$")]


class _View(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Requires(_View):
    """What an image needs of a machine; None is not known, and refuses nothing."""

    variant: Literal["cpu", "cuda"] | None = None
    minimum_driver: DriverVersion | None = None
    minimum_compute_capability: ComputeCapability | None = None


class Register(_View):
    """An image that stands on this machine, and from now on is the newest of its environment.

    `base`: for an environment that catalog.yaml does not name: whose groups may use it.
    """

    digest: Digest
    environment: Word
    reference: Annotated[Line, Field(min_length=1)]
    source: Source | None = None
    label: Line = ""
    title: Annotated[Line, Field(min_length=1)]
    description: Prose = ""
    packages: Annotated[dict[Line, Line], Field(max_length=500)] = {}
    requires: Requires = Requires()
    size_bytes: Annotated[int, Field(ge=0, le=_MOST_BYTES)] | None = None
    made_at: Moment | None = None
    base: Word | None = None


class Retire(_View):
    """`replaced_by`: the version (or digest) to take instead; None is whatever is offered."""

    replaced_by: Annotated[str, Field(pattern=r"^(sha256:)?[0-9a-f]{12,64}$")] | None = None


class ImageView(_View):
    """One image. `offered` is what a start without a version takes; `used_by` counts live leases."""

    digest: str
    version: str
    environment: str
    reference: str
    source: str | None
    label: str
    title: str
    packages: dict[str, str]
    requires: dict[str, str]
    size_bytes: int | None
    made_at: AwareDatetime | None
    added_at: AwareDatetime
    state: Literal["offered", "kept", "retired", "removing", "removed"]
    pinned: bool
    replaced_by: str | None
    base: str | None
    used_by: int
