"""Every page that exists, looked at by axe: light and dark, wide and narrow; and by keyboard alone."""

import itertools
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, Page, expect

from dashboard.gateway import Gateway
from tests.support.browser import Visitor, screenshot
from tests.support.odradek import OdradekBroker
from tests.support.processes import wait_until
from tests.support.web import WebProcess
from tests.web.pages import NOT_OURS, NOT_PAGES
from tests.web.test_roles import NOBODY, PAGES


class Look(NamedTuple):
    scheme: str
    width: int

    def __str__(self) -> str:
        return f"{self.scheme}-{self.width}"


WIDE, DARK, NARROW = Look("light", 1440), Look("dark", 1440), Look("dark", 390)
BY_COLOUR = ("color-contrast", "link-in-text-block")
BY_WIDTH = ("scrollable-region-focusable", "target-size")
LOOKS = ((WIDE, ()), (NARROW, BY_COLOUR + BY_WIDTH))
"""All that axe has once a page; then what depends on colours and widths, with both changed at once."""
CROSSED = ((DARK, BY_COLOUR), (Look("light", 390), BY_COLOUR))
"""No rule of a style sheet gives other colours to a narrow window: asked where time matters less."""
DRAWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""Boxes that have begun to scroll are made reachable when the window has been drawn anew."""
REFLOW = 320
"""CSS pixels that a page has to fit in (WCAG 1.4.10)."""
ZOOMED = 640
"""A window of 1280 pixels at 200 %."""


def test_no_page_is_left_out(pages: dict[str, str]) -> None:
    shown = {name for name, (get, _) in PAGES.items() if get is not NOBODY}

    assert pages.keys() == shown - NOT_PAGES - NOT_OURS.keys()


@pytest.mark.parametrize(
    "looks",
    [
        pytest.param(LOOKS, id="usual"),
        pytest.param(CROSSED, id="crossed", marks=pytest.mark.slow),
    ],
)
def test_axe_finds_nothing_serious(
    visit: Callable[..., Visitor],
    pages: dict[str, str],
    looks: tuple[tuple[Look, tuple[str, ...]], ...],
) -> None:
    """Nor is the order of headings broken, nor does any page run out of a narrow window."""
    troubles: list[str] = []
    for name, page in _each(visit, pages, troubles):
        troubles += [f"{name}: {one}" for one in _disorder(page)]
        for look, rules in looks:
            troubles += [f"{name} {look}: {one}" for one in _at(page, name, look, rules)]
        for width in (REFLOW, ZOOMED):
            page.set_viewport_size({"width": width, "height": 900})
            if over := _too_wide(page):
                troubles.append(f"{name} {width}: {over} pixels too wide")
    assert not troubles, "\n".join(troubles)


def _each(
    visit: Callable[..., Visitor], pages: dict[str, str], troubles: list[str]
) -> Iterator[tuple[str, Page]]:
    """Every page, loaded, with axe in it; one that cannot be had is a trouble."""
    signed_in, stranger = visit("ada"), visit(None)
    for name, path in pages.items():
        page = (stranger if name == "login" else signed_in).page
        answer = page.goto(path, wait_until="load")
        if answer is None or not answer.ok:
            troubles.append(f"{name}: {answer and answer.status}")
            continue
        page.evaluate(AXE_SCRIPT)
        yield name, page


def _at(page: Page, name: str, look: Look, rules: tuple[str, ...]) -> list[str]:
    page.emulate_media(color_scheme=look.scheme)  # type: ignore[arg-type]
    page.set_viewport_size({"width": look.width, "height": 900})
    page.evaluate(DRAWN)
    screenshot(page, f"{name}-{look}")
    troubles = _violations(page, rules)
    if over := _too_wide(page):
        troubles.append(f"{over} pixels too wide")
    return troubles


def _too_wide(page: Page) -> int:
    found: int = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    return max(0, found)


def _disorder(page: Page) -> list[str]:
    """One heading of the first level, which comes first, and none that skips a level."""
    levels: list[int] = page.evaluate(
        "[...document.querySelectorAll('h1, h2, h3, h4, h5, h6')]"
        ".filter(one => one.checkVisibility()).map(one => Number(one.localName[1]))"
    )
    skips = [pair for pair in itertools.pairwise(levels) if pair[1] > pair[0] + 1]
    is_orderly = levels[:1] == [1] and levels.count(1) == 1 and not skips
    return [] if is_orderly else [f"headings in this order: {levels}"]


@pytest.mark.parametrize("path", ["topics/?q=", "retention/?q="])
def test_a_long_name_leaves_the_other_columns_their_place(
    visit: Callable[..., Visitor], shared_odradek: OdradekBroker, path: str
) -> None:
    """Without a dash or a dot in it, after which a browser would break it."""
    name = f"{uuid.uuid4().hex}_{'a_name_of_' * 25}"[:249]
    Gateway(shared_odradek.bootstrap).create_topics([name], partitions=1, replication_factor=1)
    page = visit("ada").page

    def is_listed() -> bool:
        page.goto(f"{path}{name[:32]}")
        return page.get_by_role("rowheader", name=name).count() == 1

    wait_until(is_listed, 60, "the topic in a snapshot", every=0.5)

    scroll = page.locator(".table-scroll", has=page.get_by_role("rowheader", name=name))
    assert scroll.evaluate("one => one.scrollWidth <= one.clientWidth")
    page.set_viewport_size({"width": 390, "height": 900})
    cell = page.get_by_role("rowheader", name=name)
    assert cell.evaluate("one => one.scrollWidth <= one.clientWidth")


def test_axe_finds_what_is_wrong(visit: Callable[..., Visitor]) -> None:
    """The judge can say no."""
    visitor = visit("ada")
    visitor.allowed.append("no-such.png")
    page = visitor.page
    page.goto("")
    page.evaluate("document.querySelector('main').innerHTML = '<input><img src=\"/no-such.png\">'")
    page.evaluate(AXE_SCRIPT)

    assert {found.partition(":")[0] for found in _violations(page)} >= {"label", "image-alt"}


def _violations(page: Page, rules: tuple[str, ...] = ()) -> list[str]:
    """What is serious or critical by these rules; by all that axe has when none are named."""
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    found: list[dict[str, Any]] = page.evaluate(
        "options => axe.run(options).then(results => results.violations)", options
    )
    return [
        f"{one['id']}: {one['help']}: "
        + "; ".join(f"{node['target']} {node['html'][:200]}" for node in one["nodes"][:3])
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def test_a_request_to_another_host_fails_a_visit(chromium: Browser, web: WebProcess) -> None:
    """What every other test of a page relies on. The page's own policy stops the request too."""
    for scheme in ("http", "ws"):
        visitor = Visitor(chromium, web, "ada")
        visitor.page.goto("about:blank")
        ask = (
            "() => new Promise(done => { const image = new Image();"
            " image.onerror = done; image.src = 'http://elsewhere.invalid/x.png'; })"
            if scheme == "http"
            else "() => new Promise(done => {"
            " new WebSocket('ws://elsewhere.invalid/').onerror = () => done(); })"
        )
        visitor.page.evaluate(ask)
        with pytest.raises(AssertionError, match=r"elsewhere\.invalid"):
            visitor.close()
    visitor = Visitor(chromium, web, "ada")
    visitor.page.goto("")
    visitor.page.evaluate("fetch('http://elsewhere.invalid/').catch(() => null)")
    with pytest.raises(AssertionError, match="Content Security Policy"):
        visitor.close()


def test_a_page_is_used_by_keyboard_alone(visit: Callable[..., Visitor]) -> None:
    page = visit("ada").page
    page.goto("users/")

    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_label("Search")).to_be_focused()

    menu = page.locator("details.menu", has_text="ada").locator("summary")
    menu.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="API tokens")).to_be_visible()
    page.evaluate(AXE_SCRIPT)
    assert _violations(page) == []
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="API tokens")).to_be_hidden()
    expect(menu).to_be_focused()

    for opener, window in (("Control+k", "Go to"), ("?", "Keyboard shortcuts")):
        page.keyboard.press(opener)
        dialog = page.get_by_role("dialog", name=window)
        expect(dialog).to_be_visible()
        assert _violations(page) == []
        page.keyboard.press("Escape")
        expect(menu).to_be_focused()


def test_what_colours_say_is_said_without_them(visit: Callable[..., Visitor]) -> None:
    page = visit("ada").page
    page.emulate_media(forced_colors="active", reduced_motion="reduce")
    page.goto("problems/")
    here = page.locator("nav.side [aria-current=page]")
    assert here.evaluate("one => getComputedStyle(one).outlineStyle") == "solid"
