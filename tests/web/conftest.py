"""The dashboard as people use it: a real web process, a real broker, a real Chromium.

Each file has a broker and a web process of its own: what is on a page does not follow from which
other files ran before, and in what order. Within a file use topic and group names of your own.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.browser import Visitor, chromium
from tests.support.fixtures import *  # noqa: F403
from tests.support.fixtures import SHARED_SETTINGS
from tests.support.odradek import OdradekBroker
from tests.support.web import WebProcess
from tests.web.pages import make_pages

__all__ = ["chromium"]


@pytest.fixture(scope="module")
def shared_odradek(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OdradekBroker]:
    """The broker of this file."""
    with OdradekBroker(tmp_path_factory.mktemp("odradek"), SHARED_SETTINGS) as odradek:
        yield odradek
        odradek.stop()


@pytest.fixture(scope="module")
def web(
    shared_odradek: OdradekBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[WebProcess]:
    """The dashboard beside our own broker, in one data directory, as `odradek serve` runs them."""
    directory = tmp_path_factory.mktemp("web")
    with WebProcess(directory, shared_odradek.bootstrap, data=shared_odradek.data) as web:
        yield web


@pytest.fixture(scope="module")
def pages(web: WebProcess) -> dict[str, str]:
    """The address of each page by its name, with something on it."""
    return make_pages(web)


@pytest.fixture
def visit(chromium: Any, web: WebProcess) -> Iterator[Callable[..., Visitor]]:
    """Open a browser window as this user: ``visit("vera").page``."""
    visitors: list[Visitor] = []

    def open_window(user: str | None = "ada", **options: Any) -> Visitor:
        visitors.append(Visitor(chromium, web, user, **options))
        return visitors[-1]

    yield open_window
    for visitor in visitors:
        visitor.close()
