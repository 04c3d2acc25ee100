"""Builds the ASGI application from services that somebody else made."""

from __future__ import annotations

from typing import Any

from allotment_spawner.wire import Problem
from fastapi import APIRouter, FastAPI
from fastapi.staticfiles import StaticFiles

from allotment_hub.broker import problems
from allotment_hub.broker.middleware import AccessLog, BoundedBody, SecurityHeaders
from allotment_hub.broker.routes import (
    budgets,
    choices,
    data,
    disk,
    exposition,
    fleet,
    health,
    homes,
    images,
    lease_metrics,
    lease_steps,
    leases,
    live,
    notices,
    pages,
    saved,
    sign_in,
    usage,
    usage_page,
)
from allotment_hub.broker.routes.context import PREFIX, Context
from allotment_hub.dashboard.render import STATIC

__all__ = ["API", "create_app"]

API = f"{PREFIX}/api/v1"
_API = (
    lease_metrics,
    lease_steps,
    leases,
    notices,
    choices,
    data,
    images,
    fleet,
    homes,
    saved,
    disk,
    live,
    usage,
    budgets,
)
_PAGES = (health, exposition, sign_in, pages, usage_page)


def create_app(context: Context) -> FastAPI:
    """Every path lies below /services/allotment/; the API's description is `openapi.json` below `API`."""
    app = FastAPI(
        title="Allotment",
        version=context.version,
        openapi_url=f"{API}/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.context = context
    problems.install(app, page=context.pages.refusal, api_prefix=API)
    api = APIRouter(prefix=API)
    for module in _API:
        api.include_router(module.router)
    app.include_router(api)
    for page in _PAGES:
        app.include_router(page.router, prefix=PREFIX)
    app.mount(f"{PREFIX}/static", StaticFiles(directory=STATIC), name="static")
    _describe_problems(app)
    # The last one added is the outermost.
    app.add_middleware(BoundedBody)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(AccessLog)
    return app


def _describe_problems(app: FastAPI) -> None:
    """Put the Problem model, which no route names as its answer, into the description once."""
    plain = app.openapi

    def described() -> dict[str, Any]:
        schema = plain()
        schemas = schema.setdefault("components", {}).setdefault("schemas", {})
        schemas.setdefault("Problem", Problem.model_json_schema(mode="serialization"))
        return schema

    app.openapi = described  # type: ignore[method-assign]
