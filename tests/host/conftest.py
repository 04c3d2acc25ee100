"""Installations and stand-in services for the tests of `up`, `down` and the supervisor."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from allotment_testing.installation import Installation


@pytest.fixture
def installation() -> Iterator[Installation]:
    """One that is not started yet; removed afterwards, whatever the test did."""
    made = Installation()
    yield made
    made.close()


@pytest.fixture(scope="module")
def running() -> Iterator[Installation]:
    """One that runs for all tests of a module."""
    made = Installation()
    try:
        made.up()
        yield made
    finally:
        made.close()
