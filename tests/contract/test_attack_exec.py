"""A process that becomes another program shows the kernel's readers nothing for a moment: it is not gone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from allotment_spawner.engines.local import LocalEngine

INSTALLATION = uuid4().hex[:8]
FOR_S = 3.0
_AGAIN = """
import os, sys, time
if time.time() < float(sys.argv[1]):
    os.execv(sys.executable, [sys.executable, "-S", "-E", __file__, sys.argv[1]])
"""


@pytest.fixture
def restless(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A session's process that does nothing but exec itself."""
    program = tmp_path / "again.py"
    program.write_text(_AGAIN)
    env = {
        "PATH": os.environ["PATH"],
        "ALLOTMENT_INSTALLATION": INSTALLATION,
        "ALLOTMENT_LEASE": "lease-1",
        "ALLOTMENT_USER": "ada",
        "ALLOTMENT_SERVER": "",
    }
    until = str(time.time() + FOR_S + 2)
    process = subprocess.Popen(
        [sys.executable, "-S", "-E", str(program), until], env=env, start_new_session=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def test_a_process_in_exec_is_never_gone(restless: subprocess.Popen[bytes]) -> None:
    engine = LocalEngine(installation=INSTALLATION)
    until = time.monotonic() + FOR_S
    looks = 0
    while time.monotonic() < until:
        assert [one.lease for one in await engine.observe()] == ["lease-1"], f"lost at look {looks}"
        looks += 1
    assert looks > 10
    assert restless.poll() is None
    await engine.stop("lease-1", grace_s=1)
    assert restless.wait(5) != 0
