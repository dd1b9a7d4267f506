"""A real Chromium. Whatever a page asks from another host, or complains about, fails the test."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Page,
    Playwright,
    expect,
    sync_playwright,
)

from tests.support import judge
from tests.support.web import WebProcess

LAUNCHER = Path(__file__).with_name("chromium.sh")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
#: How long a page may take to become as a test expects it: a limit for the worst machine, not a bar.
PATIENCE_MS = 30_000


def launch(playwright: Playwright) -> Browser:
    """Chromium; its headless shell where it is installed: that draws for no window system, which halves what a page costs."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        judge.missing("chromium is not installed (Debian: chromium-headless-shell)")
    return playwright.chromium.launch(
        executable_path=LAUNCHER, args=ARGUMENTS, env={**os.environ, "CHROMIUM": path}
    )


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()


class Visitor:
    """One person's browser window on one appliance; `origin` is where a proxy stands before it."""

    def __init__(
        self,
        chromium: Browser,
        web: WebProcess,
        user: str | None,
        *,
        origin: str | None = None,
        **options: Any,
    ) -> None:
        self.web = web
        self._origin = origin or f"http://127.0.0.1:{web.port}"
        base_url = f"{self._origin}{web.root_path}/"
        self.troubles: list[str] = []
        self.allowed = ["htmx:sendAbort", "htmx:afterRequest"]
        """Parts of console messages that a test expects (an answer 403 that it asked for). Leaving a
        page while it asks for a part of itself is told by htmx as an error, and again after it."""
        self.context: BrowserContext = chromium.new_context(
            base_url=base_url, viewport={"width": 1440, "height": 900}, **options
        )
        if user is not None:
            self.context.add_cookies(
                [{"name": web.cookie_name, "value": web.sessions[user], "url": base_url}]
            )
        self.page: Page = self.context.new_page()
        self.context.on("request", self._on_request)
        self.context.on("console", self._on_console)
        self.context.on("weberror", lambda error: self.troubles.append(f"script: {error.error}"))

    def _on_request(self, request: Any) -> None:
        url = urlsplit(request.url)
        is_here = url.netloc == urlsplit(self._origin).netloc
        if url.scheme in ("http", "https", "ws", "wss") and not is_here:
            self.troubles.append(f"off-host request: {request.url}")

    def _on_console(self, message: Any) -> None:
        if message.type == "error":
            self.troubles.append(f"console: {message.text} {message.location}")

    def close(self) -> None:
        self.context.close()
        unexpected = [
            trouble
            for trouble in self.troubles
            if not any(allowed in trouble for allowed in self.allowed)
        ]
        assert not unexpected, "\n".join(unexpected)


def screenshot(page: Page, name: str) -> None:
    """Kept where ODRADEK_SCREENSHOTS says; nowhere else."""
    if directory := os.environ.get("ODRADEK_SCREENSHOTS"):
        Path(directory).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(directory) / f"{name}.png", full_page=True)
