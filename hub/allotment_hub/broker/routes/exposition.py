"""The page that Prometheus scrapes."""

from __future__ import annotations

from allotment_spawner.core.errors import BrokerUnavailable
from fastapi import APIRouter, Request, Response

from allotment_hub.broker.routes.context import PROBLEMS, Ctx

__all__ = ["router"]

router = APIRouter(tags=["metrics"], responses=PROBLEMS)

_KIND = "text/plain; version=0.0.4; charset=utf-8"


@router.get(
    "/metrics", response_class=Response, responses={200: {"content": {_KIND: {"schema": {"type": "string"}}}}}
)
async def metrics(context: Ctx, request: Request) -> Response:
    """For operators, and for tokens with the hub's scope `read:metrics`. Always in the text format 0.0.4,
    which every Prometheus reads."""
    await context.auth.may_scrape(request)
    if not context.ready:
        raise BrokerUnavailable(
            "The broker is comparing its book with the machine.", "Try again in a few seconds."
        )
    return Response(await context.monitoring.page(), media_type=_KIND)
