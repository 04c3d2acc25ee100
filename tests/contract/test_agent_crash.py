"""A crash (an exception that nobody catches) at any step of any sequence leaves a machine that settles."""

from __future__ import annotations

import tempfile
from pathlib import Path

from allotment_spawner.core.errors import DeviceBusy
from allotment_testing.agents import InProcessAgent
from hypothesis import given, settings
from hypothesis import strategies as st

PLACES = [("1g.10gb", 0), ("1g.10gb", 3), ("2g.20gb", 2), ("3g.40gb", 4), ("4g.40gb", 0), ("1g.10gb+me", 6)]


class Crash(BaseException):
    """Not an Exception, so that no handler of ours can mistake it for an answer."""


class CrashesAt:
    """Raises at the n-th step from now on; 0 never."""

    def __init__(self) -> None:
        self.left = 0

    def __call__(self, _step: str) -> None:
        self.left -= 1
        if self.left == 0:
            raise Crash


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from(PLACES), st.integers(min_value=0, max_value=8)), max_size=12
    )
)
async def test_any_crash_settles(moves: list[tuple[bool, tuple[str, int], int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sim.json"
        crash = CrashesAt()
        agent = InProcessAgent(path, on_step=crash)
        gpu = (await agent.inventory()).gpus[0].uuid
        stands: set[tuple[str, int]] = set()
        for make, (profile, start), left in moves:
            crash.left = left
            unsure = False
            try:
                if make:
                    await agent.ensure_slice(gpu, profile, start)
                    stands.add((profile, start))
                else:
                    await agent.destroy_slice(gpu, profile, start)
                    stands.discard((profile, start))
            except DeviceBusy:
                assert make
            except Crash:
                unsure = True
                agent = InProcessAgent(path, on_step=crash)
            slices = (await agent.inventory()).gpus[0].slices
            assert all(s.uuid is not None and s.ours for s in slices)
            found = {(s.profile, s.start) for s in slices}
            # Only the slice in hand may have gone either way.
            assert found ^ stands <= ({(profile, start)} if unsure else set())
            stands = found
