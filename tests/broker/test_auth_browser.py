"""Signing in with a browser, and what its cookie may and may not do."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from allotment_hub.broker.routes.sign_in import safe_next
from allotment_testing.broker_api import HUB_TOKEN, BrokerApi, broker_api
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

PAGE = "/services/allotment/"
API = "/services/allotment/api/v1/"
NAVIGATION = {"Sec-Fetch-Dest": "document", "Sec-Fetch-Mode": "navigate", "Accept": "text/html"}
FROM_SCRIPT = {
    "Accept": "*/*",
    "Sec-Fetch-Dest": "empty",
    "Sec-Fetch-Mode": "cors",
    "Sec-Fetch-Site": "same-origin",
}


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[BrokerApi]:
    async with broker_api(tmp_path) as made:
        made.hub.add_user("ann")
        made.hub.add_user("ben")
        made.hub.signed_in_as = "ann"
        yield made


@pytest.fixture
async def browser(api: BrokerApi) -> AsyncIterator[httpx.AsyncClient]:
    """Hub and broker on one origin, as behind the proxy; keeps cookies, follows redirects."""
    both = Starlette(routes=[Mount("/services", app=Under(api.app)), Mount("/", app=api.hub.app)])
    transport = httpx.ASGITransport(app=both, raise_app_exceptions=False)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://site", headers=NAVIGATION, follow_redirects=True
    ) as made:
        yield made


class Under:
    """Gives the application its whole path back, which a mount cut."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app({**scope, "root_path": ""}, receive, send)


async def sign_in(browser: httpx.AsyncClient) -> str:
    """The page's own token after signing in."""
    page = await browser.get(PAGE)
    assert page.status_code == 200, page.text
    found = re.search(r'name="allotment-csrf" content="([^"]+)"', page.text)
    assert found is not None
    return found.group(1)


async def test_signing_in_shows_the_page(api: BrokerApi, browser: httpx.AsyncClient) -> None:
    page = await browser.get(PAGE)
    assert page.status_code == 200
    assert page.url.path == PAGE
    assert "Simulated GPUs" in page.text
    assert "10 GB GPU" in page.text
    assert "The machine" not in page.text
    cookie = next(one for one in browser.cookies.jar if one.name == "allotment-session")
    assert cookie.path == PAGE
    assert cookie.has_nonstandard_attr("HttpOnly")
    token = next(iter(api.hub.tokens))
    assert token not in page.text
    assert cookie.value
    assert token not in cookie.value


async def test_the_flow_uses_pkce_and_a_state(browser: httpx.AsyncClient) -> None:
    answer = await browser.get(PAGE, follow_redirects=False)
    target = urlsplit(answer.headers["location"])
    query = {key: values[0] for key, values in parse_qs(target.query).items()}
    assert (target.netloc, target.path) == ("", "/hub/api/oauth2/authorize")
    assert query["code_challenge_method"] == "S256"
    assert len(query["code_challenge"]) == 43
    assert query["redirect_uri"] == "/services/allotment/oauth_callback"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Path=/services/allotment/oauth_callback" in cookie


@pytest.mark.parametrize(
    "query", ["", "?code=x", "?code=x&state=y", "?error=access_denied&state=y", "?state=%00"]
)
async def test_a_callback_that_nobody_began_is_refused(browser: httpx.AsyncClient, query: str) -> None:
    answer = await browser.get(f"{PAGE}oauth_callback{query}")
    assert answer.status_code == 401
    assert "text/html" in answer.headers["content-type"]
    assert "Open the page again" in answer.text


async def test_a_code_of_another_browser_is_refused(api: BrokerApi, browser: httpx.AsyncClient) -> None:
    """Login CSRF: a victim must not be signed in as the one who sent the link."""
    begun = await browser.get(PAGE, follow_redirects=False)
    link = (await browser.get(begun.headers["location"], follow_redirects=False)).headers["location"]
    browser.cookies.clear()
    assert (await browser.get(link)).status_code == 401
    assert "allotment-session" not in browser.cookies


async def test_a_forged_sign_in_cookie_is_refused(browser: httpx.AsyncClient) -> None:
    begun = await browser.get(PAGE, follow_redirects=False)
    state = parse_qs(urlsplit(begun.headers["location"]).query)["state"][0]
    name = f"allotment-signin-{state[:8]}"
    sealed = browser.cookies[name]
    for forged in (sealed[:-1] + "0", "." + sealed.partition(".")[2], "é", ""):
        answer = await browser.get(
            f"{PAGE}oauth_callback?code=x&state={state}", headers=[(b"Cookie", f"{name}={forged}".encode())]
        )
        assert answer.status_code == 401


async def test_the_cookie_alone_does_nothing_for_a_script(api: BrokerApi, browser: httpx.AsyncClient) -> None:
    """A script of another person's server runs on our origin and the browser sends it our cookie."""
    csrf = await sign_in(browser)
    lease = (await api.lease("ann"))["lease"]
    assert isinstance(lease, dict)
    address = f"{API}leases/{lease['id']}"
    in_a_tag = {**FROM_SCRIPT, "Sec-Fetch-Dest": "script"}
    for headers in (FROM_SCRIPT, {**FROM_SCRIPT, "X-Allotment-CSRF": "x"}, in_a_tag):
        for method, path in (("GET", f"{API}leases"), ("GET", f"{PAGE}board"), ("DELETE", address)):
            answer = await browser.request(method, path, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (403, "cross_site")
        page = await browser.get(PAGE, headers=headers)
        assert csrf not in page.text
    assert api.hub.stopped == []


async def test_the_page_itself_may(api: BrokerApi, browser: httpx.AsyncClient) -> None:
    own = {**FROM_SCRIPT, "X-Allotment-CSRF": await sign_in(browser)}
    lease = (await api.lease("ann", flavor="cpu"))["lease"]
    assert isinstance(lease, dict)
    board = await browser.get(f"{PAGE}board", headers=own)
    assert lease["id"] in board.text
    assert (await browser.get(f"{API}me", headers=own)).json()["name"] == "ann"
    answer = await browser.delete(f"{API}leases/{lease['id']}", headers=own)
    assert answer.status_code == 202
    cross = {**own, "Sec-Fetch-Site": "cross-site"}
    assert (await browser.delete(f"{API}leases/{lease['id']}", headers=cross)).status_code == 403


async def test_an_address_typed_into_the_browser_shows_json(browser: httpx.AsyncClient) -> None:
    await sign_in(browser)
    answer = await browser.get(f"{API}me")
    assert answer.json()["name"] == "ann"
    assert answer.headers["cross-origin-opener-policy"] == "noopener-allow-popups"
    assert answer.headers["x-frame-options"] == "DENY"


async def test_signing_out_at_the_hub_ends_the_session(api: BrokerApi, browser: httpx.AsyncClient) -> None:
    csrf = await sign_in(browser)
    api.hub.tokens.clear()
    api.hub.signed_in_as = None
    api.context.auth.forget_answers()
    own = {**FROM_SCRIPT, "X-Allotment-CSRF": csrf}
    assert (await browser.get(f"{API}me", headers=own)).status_code == 401
    page = await browser.get(PAGE, follow_redirects=False)
    assert page.headers["location"].startswith("/hub/api/oauth2/authorize")


async def test_a_person_without_access_gets_a_page_that_says_so(
    api: BrokerApi, browser: httpx.AsyncClient
) -> None:
    await sign_in(browser)
    token = next(iter(api.hub.tokens))
    api.hub.tokens[token] = ("user", "ann", ())
    api.context.auth.forget_answers()
    page = await browser.get(PAGE)
    assert page.status_code == 403
    assert "may not use Allotment" in page.text


async def test_operators_see_the_machine(api: BrokerApi, browser: httpx.AsyncClient) -> None:
    api.hub.add_user("root", admin=True)
    api.hub.signed_in_as = "root"
    await api.lease("ann", flavor="gpu-full")
    page = await browser.get(PAGE)
    assert "The machine" in page.text
    assert "ann" in page.text


async def test_the_page_has_no_inline_script_and_a_strict_policy(browser: httpx.AsyncClient) -> None:
    page = await browser.get(PAGE)
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"<script(?![^>]*\bsrc=)", page.text)
    assert not re.search(r"\s(style|on[a-z]+)=", page.text)
    for name in ("dashboard.css", "dashboard.js", "icon.svg"):
        assert (await browser.get(f"{PAGE}static/{name}")).status_code == 200


async def test_names_are_escaped(api: BrokerApi, browser: httpx.AsyncClient) -> None:
    api.hub.add_user("<script>alert(1)</script>", admin=True)
    api.hub.signed_in_as = "<script>alert(1)</script>"
    await api.lease("<script>alert(1)</script>", server='"><img src=x>')
    page = await browser.get(PAGE)
    assert page.status_code == 200
    assert "<script>alert" not in page.text
    assert "<img" not in page.text


@pytest.mark.parametrize(
    "target",
    ["https://evil.example/", "//evil.example", "/\\evil.example", "/hub/logout", "/services/allotment/../x",
     "/services/allotmentevil", "javascript:alert(1)", "", "/services/allotment/\r\nSet-Cookie: a=b"],
)  # fmt: skip
def test_next_stays_on_our_own_pages(target: str) -> None:
    assert safe_next(target) == PAGE


def test_next_keeps_our_own_pages() -> None:
    assert safe_next("/services/allotment/api/v1/me") == "/services/allotment/api/v1/me"


@pytest.mark.parametrize("day", ["2026-13-45", "0000-00-00", "9999-12-31", "1999-12-31"])
@pytest.mark.parametrize("end", ["from", "to"])
async def test_days_that_mean_nothing_are_refused_with_what_to_write(
    browser: httpx.AsyncClient, end: str, day: str
) -> None:
    await sign_in(browser)
    page = await browser.get(f"{PAGE}usage", params={end: day})
    assert page.status_code == 422
    assert "Write it as 2030-01-31" in page.text


async def test_the_page_says_why_the_last_start_was_refused(
    api: BrokerApi, browser: httpx.AsyncClient
) -> None:
    for number in range(50):
        await api.lease("ann", server=f"s{number}", flavor="cpu")
    async with api.client(HUB_TOKEN) as hub:
        body = {"user": "ann", "server": "more", "environment": "minimal", "flavor": "cpu"}
        refused = await hub.post("leases", json=body, headers={"Idempotency-Key": "attempt-of-ann"})
    assert refused.json()["code"] == "too_many_sessions"
    page = await browser.get(PAGE)
    ended = page.text.partition('id="ended"')[2].partition("</details>")[0]
    assert html.escape(refused.json()["detail"]) in ended
