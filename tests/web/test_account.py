"""Signing in and out, theme and time zone."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.support.browser import Visitor
from tests.support.web import PASSWORD, WebProcess


def test_a_page_asks_a_stranger_to_sign_in(web: WebProcess) -> None:
    with web.client(None) as client:
        answer = client.get("/")

    assert answer.status_code == 302
    assert answer.headers["location"] == "/login/?next=/"


def test_signing_in_leads_to_the_overview(visit: Callable[..., Visitor]) -> None:
    page = visit(None).page
    page.goto("login/")
    page.get_by_label("Name").fill("vera")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()

    expect(page.get_by_role("heading", name="Overview")).to_be_visible()


def test_a_wrong_password_is_said_and_nothing_else(visit: Callable[..., Visitor]) -> None:
    page = visit(None).page
    page.goto("login/")
    page.get_by_label("Name").fill("vera")
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Sign in").click()

    expect(page.get_by_role("alert")).to_contain_text("correct username and password")


def test_the_theme_stays_as_chosen(visit: Callable[..., Visitor]) -> None:
    page = visit("olga").page
    page.goto("")
    page.locator("details.menu", has_text="olga").locator("summary").click()
    page.get_by_label("Theme").select_option("dark")
    page.get_by_role("button", name="Apply").click()

    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


@pytest.mark.slow
def test_one_zone_in_tables_pickers_and_the_page_of_the_api(
    visit: Callable[..., Visitor], web: WebProcess
) -> None:
    """The browser's own first, then UTC, then one that is named."""
    web.run_python(
        "import datetime as dt\n"
        "from dashboard.models import AuditEntry\n"
        "AuditEntry.objects.create(at=dt.datetime(2026, 1, 15, 11, 30, tzinfo=dt.UTC),"
        " actor_name='zones', source='page', action='zone.test', target='zones')"
    )
    page = visit("olga", timezone_id="Asia/Tokyo").page
    for zone, shown, since in (
        (None, "Asia/Tokyo", "20:30:00"),
        ("UTC", "UTC", "11:30:00"),
        ("America/New_York", "America/New_York", "06:30:00"),
        ("browser", "Asia/Tokyo", "20:30:00"),
    ):
        page.goto("audit/?who=zones")
        if zone is not None:
            page.locator("details.menu", has_text="olga").locator("summary").click()
            page.get_by_label("Time zone").focus()  # fills the list
            page.get_by_label("Time zone").select_option(zone)
            page.get_by_role("button", name="Apply").click()
        expect(page.get_by_text(f"Times in {shown}")).to_be_visible()
        expect(page.locator("tbody time").first).to_have_text(f"2026-01-15 {since}")
        expect(page.get_by_label(f"From in {shown}")).to_be_visible()
        page.goto(f"audit/?who=zones&since=2026-01-15T{since}&until=2026-01-15T{since}")
        expect(page.locator("tbody time")).to_have_count(1)
        page.goto("api/v1/docs")
        expect(page.get_by_text(f"pages show {shown}")).to_be_visible()


def test_a_new_user_gets_a_password_and_has_to_change_it(visit: Callable[..., Visitor]) -> None:
    admin = visit("ada").page
    admin.goto("users/")
    admin.get_by_role("link", name="Add a user").click()
    admin.get_by_label("Name").fill("nina")
    admin.get_by_label("Role").select_option("operator")
    admin.get_by_label("Topics whose records may be read").fill("orders-*")
    admin.get_by_role("button", name="Add").click()
    made = admin.locator("#password").inner_text()
    admin.get_by_role("link", name="Done").click()
    expect(admin.get_by_role("row", name="nina")).to_contain_text("new password due")

    nina = visit(None).page
    nina.goto("login/")
    nina.get_by_label("Name").fill("nina")
    nina.get_by_label("Password").fill(made)
    nina.get_by_role("button", name="Sign in").click()
    nina.goto("topics/")
    expect(nina.get_by_role("heading", name="Change password")).to_be_visible()
    nina.get_by_label("Old password").fill(made)
    nina.get_by_label("New password", exact=False).first.fill("my own choice 7")
    nina.get_by_label("New password confirmation").fill("my own choice 7")
    nina.get_by_role("button", name="Change password").click()
    expect(nina.get_by_role("heading", name="Overview")).to_be_visible()

    admin.get_by_role("link", name="nina").click()
    admin.get_by_label("Role").select_option("viewer")
    admin.get_by_role("button", name="Save").click()
    expect(admin.get_by_role("status").filter(has_text="nina changed")).to_be_visible()
    nina.reload()
    expect(nina.get_by_role("heading", name="Sign in")).to_be_visible()


def test_signing_out_ends_the_session(visit: Callable[..., Visitor]) -> None:
    page = visit(None).page
    page.goto("login/")
    page.get_by_label("Name").fill("vera")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    session = page.context.cookies()
    page.locator("details.menu", has_text="vera").locator("summary").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()

    page.context.add_cookies(session)  # type: ignore[arg-type]
    page.goto("topics/")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
