"""Whether the broker serves yet; needs no token."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from allotment_hub.broker.routes.context import Ctx

__all__ = ["ReadyView", "router"]

router = APIRouter(tags=["health"])


class ReadyView(BaseModel):
    model_config = ConfigDict(frozen=True)

    ready: bool
    version: str


@router.get("/health")
async def health(context: Ctx) -> ReadyView:
    """`ready` after the broker compared its book with the machine once."""
    return ReadyView(ready=context.ready, version=context.version)
