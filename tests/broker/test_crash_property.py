"""Random lives with deaths of the broker at random steps: nothing is held twice, nothing leaks."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

from allotment_testing.crash_run import FLAVORS, OPERATIONS, CrashRun, Deed
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

RUNS = int(os.environ.get("ALLOTMENT_CRASH_RUNS", "200"))
MEMORY = Path("/dev/shm")
"""The disk's speed is not what is tested: thousands of commits wait for it otherwise."""
DEEDS = st.builds(
    Deed,
    operation=st.sampled_from(OPERATIONS),
    person=st.integers(0, 4),
    flavor=st.integers(0, len(FLAVORS) - 1),
    crash=st.one_of(st.none(), st.integers(0, 12)),
)


async def live(deeds: list[Deed], folder: Path) -> None:
    run = CrashRun(folder)
    await run.start()
    try:
        for deed in deeds:
            await run.do(deed)
        await run.settle()
    finally:
        await run.bury()


def deeds_of(*operations: str) -> list[Deed]:
    return [Deed(operation=one, person=0, flavor=1, crash=None) for one in operations]


@example(deeds=deeds_of("request", "advance", "advance", "agent_silent", "reboot", "advance"))
@settings(
    max_examples=RUNS,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(deeds=st.lists(DEEDS, min_size=5, max_size=25))
def test_any_life_with_crashes_keeps_the_invariants(deeds: list[Deed]) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        asyncio.run(live(deeds, Path(folder)))
