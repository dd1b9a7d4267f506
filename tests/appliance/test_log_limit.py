"""Lines that requests cause in the web process: one a second for a client, the rest counted."""

from __future__ import annotations

import logging
import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from appliance import log_limit
from appliance.log_limit import RequestLogLimit
from tests.support import processes
from tests.support.web import WebProcess


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> RequestLogLimit:
    """Told by hand: its thread waits for ever."""
    monkeypatch.setattr(log_limit, "TICK_SECONDS", threading.TIMEOUT_MAX)
    return RequestLogLimit()


def record(name: str, text: str, address: str | None = None) -> logging.LogRecord:
    made = logging.LogRecord(name, logging.WARNING, "", 0, text, (), None)
    if address is not None:
        made.request = SimpleNamespace(META={"REMOTE_ADDR": address}, headers={})
    return made


def test_who_asks_is_the_cause(limit: RequestLogLimit) -> None:
    assert limit.filter(record("django.request", "Not Found: /a", "10.0.0.1"))
    assert not limit.filter(record("django.request", "Not Found: /b", "10.0.0.1"))
    assert limit.filter(record("django.request", "Not Found: /c", "10.0.0.2"))


def test_sign_ins_that_fail_are_counted_together(limit: RequestLogLimit) -> None:
    assert limit.filter(record("axes.handlers.database", "a failure"))
    assert not limit.filter(record("axes.handlers.database", "a failure"))


def test_what_was_held_back_of_sign_ins_is_told(
    limit: RequestLogLimit, caplog: pytest.LogCaptureFixture
) -> None:
    """The line that tells it comes from the same logger, and must not be held back itself."""
    caplog.handler.addFilter(limit)
    for _ in range(3):
        logging.getLogger("axes.handlers").warning("a failure")
    limit.tick()
    assert caplog.messages == ["a failure", "2 more by sign-ins, the last: a failure"]
    caplog.handler.removeFilter(limit)


def test_lines_of_ours_are_all_written(limit: RequestLogLimit) -> None:
    assert all(limit.filter(record("dashboard.collector", "a line")) for _ in range(3))


def test_a_foreign_host_name_has_no_traceback(limit: RequestLogLimit) -> None:
    refused = record("django.security.DisallowedHost", "Invalid HTTP_HOST header", "10.0.0.1")
    refused.exc_info = (ValueError, ValueError(), None)
    assert limit.filter(refused)
    assert refused.exc_info is None


def test_requests_under_a_foreign_name_are_told_once_a_second_and_counted(tmp_path: Path) -> None:
    count = 60
    with WebProcess(tmp_path, "127.0.0.1:1") as web, web.client(None) as client:
        began_s = time.monotonic()
        for number in range(count):
            assert client.get("/login/", headers={"Host": f"evil{number}.example"}).is_client_error

        def told() -> list[str]:
            return [x for x in web.output.read_text().splitlines() if "Invalid HTTP_HOST" in x]

        def counted() -> int:
            more = [re.search(r": (\d+) more by 127\.0\.0\.1, the last: ", x) for x in told()]
            return sum(int(each[1]) if each else 1 for each in more)

        processes.wait_until(lambda: counted() == count, 30, "all requests counted")
        assert len(told()) <= 2 + (time.monotonic() - began_s)
        assert "Traceback" not in web.output.read_text()
