"""One local installation with a simulated GPU for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from allotment_testing.installation import Installation


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    made = Installation(gpus="sim:1xA100-80GB:mig")
    try:
        made.up()
        yield made
    finally:
        made.close()
