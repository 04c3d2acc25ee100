"""What goes over the agent's socket: one JSON object a line, a reply for every request."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from allotment_spawner.core.errors import BadOptions, Refusal, refusal_from_code
from allotment_spawner.core.inventory import NodeInventory, Slice
from allotment_spawner.core.samples import NodeSamples
from allotment_spawner.disk.base import Folder, RootName, RootState, Usage

__all__ = [
    "FOLDER",
    "INVENTORY",
    "MAX_REPLY_BYTES",
    "MAX_REQUEST_BYTES",
    "NAMES",
    "REQUEST",
    "ROOT_STATE",
    "SAMPLES",
    "SLICE",
    "USAGE",
    "AnyFolderRequest",
    "AnyRequest",
    "DestroySlice",
    "EnsureSlice",
    "FolderRoot",
    "FolderUsage",
    "HealGpu",
    "HealthReport",
    "Inventory",
    "ListFolders",
    "MakeFolder",
    "Problem",
    "RemoveFolder",
    "Reply",
    "ReportHealth",
    "Sample",
    "Unhealthy",
    "malformed",
]

MAX_REQUEST_BYTES = 16 * 1024
MAX_REPLY_BYTES = 32 * 1024 * 1024
INVENTORY = TypeAdapter(NodeInventory)
SLICE = TypeAdapter(Slice)
SAMPLES = TypeAdapter(NodeSamples)
FOLDER = TypeAdapter(Folder)
USAGE: TypeAdapter[Usage | None] = TypeAdapter(Usage | None)
NAMES = TypeAdapter(list[str])
ROOT_STATE = TypeAdapter(RootState)

_Uuid = Annotated[str, Field(min_length=1, max_length=96)]
_Name = Annotated[str, Field(min_length=1, max_length=96)]
_Start = Annotated[int, Field(ge=0, le=63)]
_Path = Annotated[str, Field(min_length=1, max_length=1100)]
_Account = Annotated[int, Field(ge=0, le=2**32 - 2)]


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Request(_Message):
    id: Annotated[int, Field(ge=0, le=2**53)] = 0
    """Handed back in the reply."""


class Inventory(_Request):
    verb: Literal["inventory"] = "inventory"


class EnsureSlice(_Request):
    verb: Literal["ensure_slice"] = "ensure_slice"
    gpu_uuid: _Uuid
    profile: _Name
    start: _Start


class DestroySlice(_Request):
    verb: Literal["destroy_slice"] = "destroy_slice"
    gpu_uuid: _Uuid
    profile: _Name
    start: _Start


class Sample(_Request):
    verb: Literal["sample"] = "sample"


class ReportHealth(_Request):
    verb: Literal["health"] = "health"


class HealGpu(_Request):
    """The operator says that this GPU may be used again."""

    verb: Literal["heal"] = "heal"
    gpu_uuid: _Uuid


class _FolderRequest(_Request):
    root: RootName


class MakeFolder(_FolderRequest):
    verb: Literal["make_folder"] = "make_folder"
    name: _Path
    uid: _Account
    gid: _Account
    mode: Annotated[int, Field(ge=0, le=0o7777)]
    limit_bytes: Annotated[int, Field(ge=0, le=2**60)] | None = None


class RemoveFolder(_FolderRequest):
    verb: Literal["remove_folder"] = "remove_folder"
    name: _Path


class FolderUsage(_FolderRequest):
    verb: Literal["folder_usage"] = "folder_usage"
    name: _Path


class ListFolders(_FolderRequest):
    verb: Literal["list_folders"] = "list_folders"


class FolderRoot(_FolderRequest):
    verb: Literal["folder_root"] = "folder_root"


AnyFolderRequest = MakeFolder | RemoveFolder | FolderUsage | ListFolders | FolderRoot
AnyRequest = Inventory | EnsureSlice | DestroySlice | Sample | ReportHealth | HealGpu | AnyFolderRequest
REQUEST: TypeAdapter[AnyRequest] = TypeAdapter(Annotated[AnyRequest, Field(discriminator="verb")])


class Problem(_Message):
    """A Refusal on the wire."""

    code: str
    sentence: str
    next_step: str
    details: dict[str, Any] = {}

    @classmethod
    def of(cls, refusal: Refusal) -> Problem:
        return cls(
            code=refusal.code,
            sentence=refusal.sentence,
            next_step=refusal.next_step,
            details=dict(refusal.details),
        )

    def refusal(self) -> Refusal:
        known = {k: v for k, v in self.details.items() if k not in ("code", "sentence", "next_step")}
        return refusal_from_code(self.code, self.sentence, self.next_step, **known)


class Reply(_Message):
    """`problem` is None exactly when the verb succeeded; `result` is the verb's own JSON."""

    id: int | None
    result: Any = None
    problem: Problem | None = None


class Unhealthy(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    gpu_uuid: str
    kind: Literal["hang", "fault"]
    reason: str
    since: datetime


class HealthReport(BaseModel):
    """The front's own answer: it comes even while the hardware hangs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    ok: bool
    """False while no worker answers."""
    node: str
    gpus: str
    boot_id: str | None
    worker_pid: int | None
    unhealthy: tuple[Unhealthy, ...]


def malformed(why: str) -> Problem:
    """The answer to a line that is no request."""
    return Problem.of(
        BadOptions(f"That is no request the agent knows: {why}.", "Use a matching version of both.")
    )
