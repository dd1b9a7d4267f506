"""Background work of a broker that failed, on its page."""

import re
from pathlib import Path
from typing import Any

from playwright.sync_api import expect

from tests.support.browser import Visitor
from tests.support.odradek import OdradekBroker
from tests.support.processes import wait_until
from tests.support.web import WebProcess
from tests.web.test_cluster import in_all_looks, serious_violations


def test_a_task_that_failed_is_told_with_how_often_and_why(tmp_path: Path, chromium: Any) -> None:
    faults = tmp_path / "faults"
    faults.mkdir()
    (tmp_path / "web").mkdir()
    (faults / "retention").write_text("1")
    broker = OdradekBroker(
        tmp_path / "broker",
        {"log.retention.check.interval.ms": "200"},
        program=("tests.support.faulty_tasks", str(faults)),
    )
    with broker:
        wait_until(lambda: broker.control("node")["task_troubles"], 60, "the failure")
        with WebProcess(tmp_path / "web", broker.bootstrap, data=broker.data) as web:
            visitor = Visitor(chromium, web, "vera")
            page = visitor.page

            def is_told() -> bool:
                page.goto("brokers/1/")
                return page.get_by_text("injected: retention").count() == 1

            wait_until(is_told, 60, "the failure on the page", every=0.2)
            expect(page.get_by_role("definition").filter(has_text="injected")).to_have_text(
                re.compile(
                    r"^retention 1 time, last \d{4}-.*\(.*\)\s*RuntimeError\('injected: retention'\)$"
                )
            )
            in_all_looks(page, "task-troubles")
            assert serious_violations(page) == []
            visitor.close()
