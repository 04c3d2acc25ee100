"""One local installation with a simulated GPU, and one browser, for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from allotment_testing.chromium import CHROMIUM
from allotment_testing.installation import Installation
from playwright.sync_api import Browser, sync_playwright


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    made = Installation(gpus="sim:1xA100-80GB:mig")
    try:
        made.up()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(**CHROMIUM)
        yield made
        made.close()
