"""One hub, one proxy and one fake broker for a module's tests; people are told apart by name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from allotment_testing.fake_broker import FakeBroker
from allotment_testing.hub_process import HubProcess

_QUICK = """
c.Spawner.poll_interval = 1
c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0.5}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker() -> AsyncIterator[FakeBroker]:
    fake = FakeBroker(slices=2)
    await fake.up()
    yield fake
    await fake.down()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(
    broker: FakeBroker, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> AsyncIterator[HubProcess]:
    folder: Path = tmp_path_factory.mktemp("hub")
    extra = _QUICK + getattr(request.module, "HUB_CONFIG", "")
    process = HubProcess(
        folder=folder, broker_url=broker.url, broker_token=broker.write_token(folder), extra=extra
    )
    try:
        await process.start()
        yield process
    finally:
        await process.stop()
