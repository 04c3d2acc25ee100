"""What makes a page readable, measured in Chromium: contrast of its text, names of its controls, width."""

from __future__ import annotations

from playwright.async_api import Page

__all__ = ["hidden_on_focus", "least_contrast", "nameless_controls", "overflow_px"]

_CONTRAST = """(() => {
  const numbers = (colour) => {
    const parts = colour.match(/[\\d.]+/g).slice(0, 3).map(Number);
    return colour.startsWith("color(") ? parts : parts.map((one) => one / 255);
  };
  const light = (colour) => {
    const part = numbers(colour).map((one) => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part[0] + 0.7152 * part[1] + 0.0722 * part[2];
  };
  const ground = (one) => {
    for (; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if (!/rgba\\(.*, 0\\)/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  let worst = [21, ""];
  for (const one of document.querySelectorAll(".allot *")) {
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !one.offsetParent || one.matches("script, title, option, .btn, .visually-hidden")) continue;
    const [a, b] = [light(getComputedStyle(one).color), light(ground(one))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < worst[0]) worst = [ratio, one.outerHTML.slice(0, 200)];
  }
  return worst;
})()"""
_NAMELESS = """(() => {
  const named = (one) => one.getAttribute('aria-label') || one.textContent.trim()
    || [...(one.labels || [])].some((label) => label.textContent.trim());
  const controls = document.querySelectorAll(
    '.allot input:not([type=hidden]), .allot select, .allot button, .allot a');
  return [...controls].filter((one) => one.offsetParent && !named(one)).map((one) => one.outerHTML);
})()"""

_HIDDEN = """(() => {
  const bar = document.querySelector('.allot-bar');
  const hidden = [];
  document.documentElement.style.scrollBehavior = 'auto';  // smooth: it would be under way still
  const reached = '.allot input:not([type=hidden]):enabled, .allot select, .allot summary';
  for (const one of document.querySelectorAll(reached)) {
    if (!one.offsetParent) continue;
    one.focus({ preventScroll: false });
    if (one.getBoundingClientRect().bottom > bar.getBoundingClientRect().top + 1) hidden.push(one.outerHTML);
  }
  return hidden;
})()"""


async def hidden_on_focus(page: Page) -> list[str]:
    """Controls that lie below the form's bar when the keyboard reaches them, from top to bottom."""
    found: list[str] = await page.evaluate(_HIDDEN)
    return found


async def least_contrast(page: Page, *, within: str = ".allot") -> tuple[float, str]:
    """(the worst ratio of text to its ground in our part of a hub page, which element).

    The hub's own buttons are left out.
    """
    ratio, element = await page.evaluate(_CONTRAST.replace(".allot *", f"{within} *"))
    return float(ratio), str(element)


async def nameless_controls(page: Page, *, within: str = ".allot") -> list[str]:
    """Controls that a screen reader could not name."""
    found: list[str] = await page.evaluate(_NAMELESS.replace(".allot ", f"{within} "))
    return found


async def overflow_px(page: Page) -> int:
    """By how much the page scrolls sideways; 0 or less is none."""
    return int(
        await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    )
