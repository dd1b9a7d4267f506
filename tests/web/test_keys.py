"""Hands on the keyboard: going anywhere by name, shortcuts, the whole of the main way, steady pages."""

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from broker.model.ids import TopicPartition
from dashboard.gateway import Gateway
from tests.support.browser import Visitor
from tests.support.processes import wait_until
from tests.support.web import PASSWORD, WebProcess

Visit = Callable[..., Visitor]
TOPIC = "keys-" + "long" * 10
GROUP = "readers by key"
MOST_TABS = 120


@pytest.fixture(scope="module")
def gateway(web: WebProcess) -> Gateway:
    gateway = Gateway(web.environment["ODRADEK_CLUSTER"])
    gateway.create_topics([TOPIC], partitions=3, replication_factor=1)
    with web.client("vera") as client:
        wait_until(
            lambda: f"/topics/{TOPIC}/" in client.get("topics/", params={"q": TOPIC}).text,
            60,
            "the topic in the list",
            every=0.5,
        )
    return gateway


@pytest.fixture
def stranger(chromium: Browser, web: WebProcess) -> Iterator[Visitor]:
    visitor = Visitor(chromium, web, None)
    yield visitor
    visitor.close()


def tab_to(page: Page, place: Locator) -> None:
    """By Tab alone, as a person without a mouse gets there."""
    place.wait_for()
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        if place.evaluate("one => one === document.activeElement"):
            return
    raise AssertionError(f"{MOST_TABS} times Tab do not lead to {place}")


def press(page: Page, role: str, name: str | re.Pattern[str], key: str = "Enter") -> None:
    tab_to(page, page.get_by_role(role, name=name).first)  # type: ignore[arg-type]
    page.keyboard.press(key)


def type_into(page: Page, label: str, text: str) -> None:
    tab_to(page, page.get_by_label(label, exact=True).first)
    page.keyboard.type(text)


def go_to(page: Page, text: str) -> None:
    page.keyboard.press("Control+k")
    expect(page.locator("#jump input")).to_be_focused()
    page.keyboard.type(text)
    page.keyboard.press("Enter")


def test_a_name_leads_to_its_page(visit: Visit, web: WebProcess, gateway: Gateway) -> None:
    page = visit("ada").page
    page.goto(f"topics/?q={TOPIC}")  # of all topics it need not be among the first 50
    expect(page.get_by_role("link", name=TOPIC)).to_be_visible(timeout=30_000)

    # Enter comes sooner than the answer to the last letter, and still leads to what was typed.
    go_to(page, TOPIC[:12].upper())
    expect(page.get_by_role("heading", name=TOPIC)).to_be_visible()

    page.get_by_role("link", name="Go to…").click()
    page.keyboard.type("problems")
    expect(page.locator("#jump .jump-found")).to_have_attribute("data-text", "problems")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#jump li a").first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Problems")).to_be_visible()

    with web.client("vera") as vera:
        assert "Users" not in vera.get("jump/?to=users", headers={"HX-Request": "true"}).text
        found = vera.get("jump/", params={"to": '<b>"x'}).text
    assert "Nothing here has “&lt;b&gt;&quot;x” in its name." in found


def test_a_favourite_is_at_hand(visit: Visit, gateway: Gateway) -> None:
    page = visit("vera").page
    page.goto(f"topics/{TOPIC}/settings/")
    star = page.get_by_role("button", name="Favourite")
    expect(star).to_have_attribute("aria-pressed", "false")
    star.focus()
    page.keyboard.press("Enter")
    expect(star).to_have_attribute("aria-pressed", "true")
    expect(star).to_be_focused()

    page.keyboard.press("Control+k")
    expect(page.locator("#jump li").first).to_contain_text(TOPIC)
    page.keyboard.press("Escape")
    page.goto("topics/?only=favourites")
    expect(page.locator("table.topics tbody th")).to_have_text([re.compile(f"★ favourite {TOPIC}")])

    page.goto(f"topics/{TOPIC}/")
    star.click()
    expect(star).to_have_attribute("aria-pressed", "false")
    page.goto("topics/?only=favourites")
    expect(page.locator("#topics-count")).to_contain_text("You have no favourites yet")


@pytest.mark.usefixtures("gateway")
def test_single_keys_go_to_pages_and_can_be_switched_off(visit: Visit) -> None:
    page = visit("ada").page
    page.goto("")
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_url("**/topics/")  # and loaded, with what listens for keys
    page.keyboard.press("/")
    expect(page.get_by_label("Search", exact=True)).to_be_focused()
    page.keyboard.type("g?")
    expect(page.get_by_label("Search", exact=True)).to_have_value("g?")
    expect(page.locator("#news")).to_contain_text("No topic has “g?” in its name")

    page.locator("h1").click()
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(keys).to_contain_text("Live tail")
    keys.get_by_label("Single keys do something").uncheck()
    page.keyboard.press("Escape")
    expect(keys).to_be_hidden()

    page.reload()
    page.keyboard.press("?")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog", name="Go to")).to_be_visible()
    expect(keys).to_be_hidden()


def test_a_part_that_renews_itself_stays_as_it_was_under_the_hands(
    visit: Visit, gateway: Gateway
) -> None:
    page = visit("ada").page
    page.set_viewport_size({"width": 390, "height": 900})
    page.goto(f"topics/{TOPIC}/")
    part, box = page.locator("#topic-partitions"), page.locator("#topic-partitions .table-scroll")
    second = part.locator("details").nth(1)
    second.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(second).to_have_attribute("open", "")
    box.evaluate("box => { box.scrollLeft = 150; }")

    def renew() -> None:
        page.evaluate(
            "htmx.ajax('GET', location.pathname,"
            " {source: '#topic-partitions', target: '#topic-partitions', swap: 'outerHTML'})"
        )

    part.evaluate("part => { part.dataset.isOld = 'yes'; }")
    renew()
    expect(part).not_to_have_attribute("data-is-old", "yes")
    expect(second).to_have_attribute("open", "")
    expect(part.locator("details").first).not_to_have_attribute("open", "")
    expect(second.locator("summary")).to_be_focused()
    assert box.evaluate("box => box.scrollLeft") == 150

    # Marked text is about to be copied: the renewal waits.
    part.evaluate("part => { part.dataset.isOld = 'yes'; getSelection().selectAllChildren(part); }")
    renew()
    expect(part).to_have_attribute("data-is-old", "yes")


@pytest.mark.slow
def test_the_main_way_is_walked_by_keyboard_alone(
    stranger: Visitor, gateway: Gateway, web: WebProcess
) -> None:
    page, topic = stranger.page, "walked-by-keys"
    stranger.allowed.append("422")  # The answer to a name that was mistyped.
    page.goto("login/")
    type_into(page, "Name", "olga")
    type_into(page, "Password", PASSWORD)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()

    go_to(page, "topics")
    press(page, "link", "Create topic")
    type_into(page, "Name", topic)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=topic)).to_be_visible()

    press(page, "link", "Produce")
    type_into(page, "Value", '{"amount": 7}')
    press(page, "button", "Produce")
    expect(page.locator("#produced")).to_contain_text("1 record written")

    press(page, "link", "Messages")
    expect(page.locator("#scan-status")).to_contain_text("1 shown")
    page.keyboard.press("/")
    page.keyboard.type("json.amount > 6")
    press(page, "button", "Search")
    expect(page.locator("#rows")).to_contain_text('"amount"')

    # Not the one beside the page: the topic's own.
    tab_to(page, page.locator(".title-row").get_by_role("link", name="Live tail"))
    page.keyboard.press("Enter")
    expect(page.locator("#tail-status")).to_have_text("Live.")
    page.keyboard.press("Space")
    expect(page.locator("#tail-status")).to_contain_text("Paused")

    gateway.groups.alter_offsets(GROUP, {TopicPartition(topic, 0): 1})
    page.goto(f"groups/reset?id={GROUP.replace(' ', '+')}")
    tab_to(page, page.get_by_role("radio", name=re.compile("^All that")))
    # The first of "Where to" is the earliest, and it is chosen by moving on to it.
    tab_to(page, page.get_by_role("group", name="Where to").get_by_role("radio").first)
    page.keyboard.press("Space")
    press(page, "button", "Preview")
    expect(page.locator("#sum-replayed")).to_have_text("1")
    press(page, "button", re.compile("^Move the offsets"))
    expect(page.locator(".notice.success")).to_be_visible()

    page.goto(f"topics/{topic}/danger/")
    press(page, "link", "Delete…")
    expect(page.get_by_label("to confirm")).to_be_focused()
    page.keyboard.type("walked-by-key")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("Nothing was changed")
    page.keyboard.press("Control+a")
    page.keyboard.type(topic)
    page.keyboard.press("Enter")
    expect(page.locator(".notice.success")).to_contain_text(topic)
