"""The life of images, for operators: register, pin, retire, remove."""

from __future__ import annotations

from typing import Annotated

from allotment_spawner.wire import Word
from fastapi import APIRouter, Path, Query

from allotment_hub.broker.routes.context import ONLY_OPERATORS, PROBLEMS, Ctx
from allotment_hub.broker.services.image_views import ImageView, Register, Retire

__all__ = ["router"]

router = APIRouter(prefix="/images", tags=["operators"], responses=PROBLEMS, dependencies=[ONLY_OPERATORS])
ImageName = Annotated[
    str,
    Path(pattern=r"^(sha256:)?[0-9a-f]{12,64}$", description="A digest, or the beginning of one (a version)"),
]
Environment = Annotated[Word | None, Query(description="Only this environment's")]


@router.get("")
async def images(context: Ctx, environment: Environment = None) -> list[ImageView]:
    """Every image that was ever registered, the newest first."""
    return await context.images.listed(environment)


@router.post("")
async def register(context: Ctx, body: Register) -> ImageView:
    """An image that stands on this machine; it is offered from now on, unless another one is pinned."""
    return await context.images.register(body)


@router.put("/{image}/pin")
async def pin(context: Ctx, image: ImageName) -> ImageView:
    return await context.images.pin(image, on=True)


@router.delete("/{image}/pin")
async def unpin(context: Ctx, image: ImageName) -> ImageView:
    return await context.images.pin(image, on=False)


@router.put("/{image}/retired")
async def retire(context: Ctx, image: ImageName, body: Retire) -> ImageView:
    """No new start takes it, and who names it is told what replaces it; running sessions go on."""
    return await context.images.retire(image, on=True, replaced_by=body.replaced_by)


@router.delete("/{image}/retired")
async def bring_back(context: Ctx, image: ImageName) -> ImageView:
    return await context.images.retire(image, on=False)


@router.put("/{image}/removal")
async def begin_removal(context: Ctx, image: ImageName) -> ImageView:
    """Before it is taken from the machine: refused (`in_use`) while anything needs it."""
    return await context.images.begin_removal(image)


@router.delete("/{image}/removal")
async def end_removal(
    context: Ctx, image: ImageName, gone: Annotated[bool, Query(description="Whether it was removed")]
) -> ImageView:
    return await context.images.end_removal(image, gone=gone)
