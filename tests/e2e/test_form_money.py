"""The form in Chromium: prices and their changes, budgets, who pays, and what cannot be paid."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from allotment_spawner.core.errors import BudgetExhausted
from allotment_spawner.core.lease import LeaseState
from allotment_testing.browser_looks import hidden_on_focus, least_contrast, nameless_controls, overflow_px
from allotment_testing.fake_broker import FakeBroker
from allotment_testing.fake_things import some_budget, some_quote
from allotment_testing.form_browser import LOOKS, chromium, look_at, running_hub, shoot, signed_in
from allotment_testing.hub_process import HubProcess
from playwright.async_api import BrowserContext, expect

pytestmark = pytest.mark.asyncio(loop_scope="module")

PHYSICS, OTHER = "physics-2026", "A group with a rather long name & <odd> letters"
WHY = (
    "0.05 credits lack to pay for the shortest time of 10 minutes: the budget of physics-2026 has 0.02 left."
)


def offer(broker: FakeBroker, *, refused: str | None = None) -> None:
    """Three sizes for somebody of two groups, one of which is nearly out of money."""
    until = datetime.now(UTC) + timedelta(days=20)
    rich = some_budget(PHYSICS, left="12.345678", lasts_s=111_000, until=until)
    poor = some_budget(OTHER, left="0.031", lasts_s=279, until=until)
    own: dict[str, Any] = {"scope": "user", "id": "own", "hard": False, "unit": "gpu_hours"}
    mine = some_budget("mia", left="3.1", lasts_s=27_900, until=until, **own)
    both: dict[str, Any] = {"charge_to": PHYSICS, "may_charge": (PHYSICS, OTHER), "choices": (rich, poor)}
    cheap = [one.model_copy(update={"lasts_s": (one.lasts_s or 0) * 8}) for one in (rich, poor)]
    broker.quotes = {
        "cpu": some_quote("0.05", **{**both, "choices": cheap}, budgets=(mine, cheap[0]), minimum="0.008333"),
        "gpu-10gb": some_quote(
            "0.40", change="0.20", **both, budgets=(mine, rich), longest_s=14_400, refusal=refused
        ),
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker() -> AsyncIterator[FakeBroker]:
    fake = FakeBroker(slices=2)
    fake.used_bytes = 2**31
    offer(fake)
    await fake.up()
    yield fake
    await fake.down()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(broker: FakeBroker, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HubProcess]:
    async with running_hub(broker, tmp_path_factory.mktemp("hub")) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mia(hub: HubProcess) -> AsyncIterator[BrowserContext]:
    async with chromium() as browser, signed_in(browser, hub, "mia") as context:
        yield context


@pytest.mark.parametrize("look", LOOKS)
async def test_price_and_budget_can_be_read_everywhere(
    mia: BrowserContext, hub: HubProcess, look: str
) -> None:
    page = await mia.new_page()
    complaints: list[str] = []
    page.on("console", lambda line: complaints.append(line.text) if line.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    await look_at(page, look)
    await page.goto(f"{hub.url}/hub/spawn?opt-flavor=gpu-10gb")
    card = page.locator("[data-flavor=gpu-10gb]")
    await expect(card.locator("[data-price]")).to_have_text("0.40 credits an hour")
    await expect(card.locator("[data-change]")).to_have_text(
        re.compile(r"^0\.20 credits an hour from .*\d\d:00 CES?T$")
    )
    await expect(card.locator("[data-lasts]")).to_have_text(
        "What is left pays for 1 day 6 h. At most 4 h at a time."
    )
    summary = page.locator("#allot-summary")
    await expect(summary).to_contain_text(f"{PHYSICS} pays. What is left pays for 1 day 6 h.")
    await expect(page.locator("#allot-money [data-line]")).to_have_text(
        ["3.10 of 20.00 GPU hours left", "0.03 of 20.00 credits left", "12.34 of 20.00 credits left"]
    )
    await expect(page.locator("#allot-money time").first).to_have_text(re.compile(r" \d\d:\d\d CES?T$"))
    await page.locator(".allot-repo summary").click()
    await expect(page.get_by_role("link", name="What you have spent")).to_have_attribute(
        "href", "/services/allotment/usage"
    )
    await shoot(page, f"money-{look}")
    assert await overflow_px(page) <= 0
    assert await nameless_controls(page) == []
    assert await hidden_on_focus(page) == []
    contrast, where = await least_contrast(page)
    assert contrast >= 4.5, where
    assert complaints == []
    await page.close()


async def test_who_pays_is_chosen_and_reaches_the_broker(
    mia: BrowserContext, hub: HubProcess, broker: FakeBroker
) -> None:
    page = await mia.new_page()
    await page.goto(f"{hub.url}/hub/spawn/mia/chosen?opt-flavor=gpu-10gb")
    card, start = page.locator("[data-flavor=gpu-10gb]"), page.locator("#allot-start")
    await expect(start).to_be_enabled()
    await page.select_option("select[name=charge_to]", OTHER)
    await expect(start).to_be_disabled()
    await expect(card.locator(".allot-outcome")).to_contain_text("lacks 0.039 credits for the shortest time")
    await expect(page.locator("#allot-summary")).to_contain_text("10 GB GPU cannot be started: The budget of")
    await shoot(page, "money-poor")
    await page.locator("[data-flavor=cpu] input").check(force=True)
    await expect(start).to_be_enabled()
    await expect(page.locator("#allot-summary")).to_contain_text(f"{OTHER} pays.")
    await start.click()
    await page.wait_for_url(re.compile("/hub/spawn-pending|/user/mia/chosen"))
    assert broker.of("mia", "chosen").request.charge_to == OTHER
    await page.goto(f"{hub.url}/hub/spawn/mia/next")
    await expect(page.locator("select[name=charge_to]")).to_have_value("")
    link = f"opt-charge_to={PHYSICS}&opt-flavor=cpu"
    await page.goto(f"{hub.url}/hub/spawn/mia/linked?{link}")
    await expect(page.locator("select[name=charge_to]")).to_have_value(PHYSICS)
    await page.goto(f"{hub.url}/hub/spawn/mia/linked?opt-charge_to=strangers")
    await expect(page.locator("[data-link]")).to_contain_text("strangers, which is not yours to choose here")
    await page.close()


@pytest.mark.parametrize("look", ["dark", "phone"])
async def test_what_cannot_be_paid_says_what_lacks(
    mia: BrowserContext, hub: HubProcess, broker: FakeBroker, look: str
) -> None:
    offer(broker, refused=WHY)
    page = await mia.new_page()
    await look_at(page, look)
    await page.goto(f"{hub.url}/hub/spawn/mia/poor?opt-flavor=gpu-10gb")
    card = page.locator("[data-flavor=gpu-10gb]")
    await expect(card.locator(".allot-outcome")).to_have_text(WHY)
    await expect(card.locator("input")).to_be_disabled()
    await expect(page.locator("[data-flavor=cpu] input")).to_be_checked()
    await expect(page.locator("[data-link]")).to_contain_text(f"The link asks for gpu-10gb: {WHY}")
    await shoot(page, f"money-refused-{look}")
    assert await overflow_px(page) <= 0
    contrast, where = await least_contrast(page)
    assert contrast >= 4.5, where
    offer(broker)
    broker.schedule()  # as when somebody adds to the budget: the page hears of it
    await expect(card.locator("input")).to_be_enabled()
    await expect(card.locator("[data-lasts]")).to_contain_text("What is left pays for")
    await page.close()


async def test_a_start_that_is_refused_after_all_says_so_on_the_form(
    mia: BrowserContext, hub: HubProcess, broker: FakeBroker
) -> None:
    broker.refusals["POST leases"] = [BudgetExhausted(WHY, "Choose a smaller size, or ask for more.")]
    page = await mia.new_page()
    await look_at(page, "phone")
    await page.goto(f"{hub.url}/hub/spawn/mia/late?opt-flavor=gpu-10gb&opt-charge_to={PHYSICS}")
    await page.click("#allot-start")
    refusal = page.locator(".allot-refusal")
    await expect(refusal).to_contain_text(WHY)
    await expect(refusal).to_contain_text("Choose a smaller size, or ask for more.")
    await expect(page.locator("select[name=charge_to]")).to_have_value(PHYSICS)
    await shoot(page, "money-late")
    assert await overflow_px(page) <= 0
    await page.close()


async def test_the_waiting_page_says_what_it_will_cost_and_who_pays(
    mia: BrowserContext, hub: HubProcess, broker: FakeBroker
) -> None:
    broker.slices = 0
    page = await mia.new_page()
    await look_at(page, "phone")
    await page.goto(f"{hub.url}/hub/spawn/mia/waits?opt-flavor=gpu-10gb&opt-charge_to={PHYSICS}")
    await expect(page.locator("#allot-summary")).to_contain_text("Waiting is free.")
    await page.click("#allot-start")
    await expect(page.locator("#allot-place-box")).to_contain_text("Waiting is free of charge.")
    await expect(page.locator("#allot-then")).to_have_text(
        re.compile(r"Then 0\.40 credits an hour, and 0\.20 credits an hour from \d\d:00 CES?T\.")
    )
    await expect(page.locator("#allot-charged")).to_have_text(f"{PHYSICS} pays.")
    await shoot(page, "money-waiting")
    assert await overflow_px(page) <= 0
    poor = some_budget(PHYSICS, left="0.001")
    broker.quotes["cpu"] = some_quote("0.05", budgets=(poor,), minimum="0.008333", refusal=WHY)
    await page.click("#allot-cpu button")
    await expect(page.locator(".allot-refusal[data-code=budget_exhausted]")).to_contain_text(WHY)
    await expect(page.locator(".allot-next")).to_have_text("Your place in line is kept.")
    await shoot(page, "money-no-cpu")
    assert broker.of("mia", "waits").state is LeaseState.QUEUED
    offer(broker)
    await page.goto(f"{hub.url}/hub/spawn-pending/mia/waits")
    await page.click("#allot-cancel button")
    await page.wait_for_url(re.compile("/hub/home"))
    broker.slices = 2
    await page.close()
