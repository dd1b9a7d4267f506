"""Every page there is, on our broker and on Apache Kafka: nothing fails, and only what the Kafka
protocol has no words for is not told (docs/dashboard_fields.md)."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fixtures import Broker
from tests.support.processes import wait_until
from tests.support.web import WebProcess
from tests.web.pages import TOPIC, make_pages

NOT_TOLD = re.compile(r"[^<>]*\bnot told by this cluster\b[^<>]*")
BEYOND_THE_PROTOCOL = {
    "overview",  # bytes out
    "broker",  # its process: version, uptime, memory, loop
    "topic",  # log end offsets and segments
    "retention",  # what went and why, and what would go
}


@pytest.fixture
def dashboard(
    broker: Broker, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[WebProcess]:
    if broker.name == "odradek":
        yield request.getfixturevalue("web")
        return
    with WebProcess(tmp_path, broker.bootstrap) as web:
        yield web


def test_every_page_tells_what_the_cluster_can(dashboard: WebProcess, broker: Broker) -> None:
    pages = make_pages(dashboard)
    with dashboard.client("ada") as client, dashboard.client(None) as stranger:
        # By way of the collector, whose second look has rates, settings and groups.
        for path in (f"topics/?q={TOPIC}", "groups/?q=accessible", "problems/"):
            wait_until(lambda path=path: client.get(path).status_code == 200, 60, path)
        wait_until(lambda: f"{TOPIC}</a>" in client.get(f"topics/?q={TOPIC}").text, 60, "the topic")
        wait_until(
            lambda: "accessible readers" in client.get("groups/?q=accessible").text, 60, "the group"
        )
        silent = {}
        for name, path in pages.items():
            answer = (stranger if name == "login" else client).get(path)
            assert answer.status_code == 200, name
            assert 'role="alert"' not in answer.text, name
            assert not re.search(r">\s*(None|nan|Traceback)\b", answer.text), name
            if found := NOT_TOLD.findall(answer.text):
                silent[name] = [one.strip() for one in found]
    assert silent.keys() == (set() if broker.name == "odradek" else BEYOND_THE_PROTOCOL), silent
