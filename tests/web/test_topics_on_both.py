"""Every page about topics, and every change, on our broker and on Apache Kafka: the same script."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from dashboard.cluster import KafkaFailure, TopicView
from dashboard.gateway import Gateway
from tests.support.fixtures import Broker
from tests.support.processes import wait_until
from tests.support.web import WebProcess, post

NewName = Callable[[], str]


@pytest.fixture
def client(
    broker: Broker, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[httpx.Client]:
    """Signed in at a dashboard of this broker."""
    if broker.name == "odradek":
        with request.getfixturevalue("web").client("olga") as client:
            yield client
        return
    with WebProcess(tmp_path, broker.bootstrap) as web, web.client("olga") as client:
        yield client


def alerts(answer: httpx.Response) -> str:
    """What the page complains about."""
    found = re.findall(
        r'<\w+ class="notice error" role="alert"[^>]*>(.*?)</(?:p|li)>', answer.text, re.S
    )
    return " | ".join(found)


def test_every_page_and_every_change(
    client: httpx.Client, broker: Broker, new_topic_name: NewName
) -> None:
    gateway = Gateway(broker.bootstrap)
    name, copy = new_topic_name(), new_topic_name()

    # Refusals of the broker stand beside the field that they are about.
    create = client.get("/topics/~create/")
    assert create.status_code == 200
    assert ("odradek.produce.validation" in create.text) == (broker.name == "odradek")
    said = {"name": name, "partitions": "2", "setting:retention.ms": "nonsense"}
    refused = post(client, "/topics/~create/", said)
    assert refused.status_code == 422
    assert 'id="setting-retention-ms-error"' in refused.text, alerts(refused)
    for field, wrong in (("name", "a b"), ("replicas", "77")):
        refused = post(client, "/topics/~create/", {"name": name, field: wrong})
        assert f'id="{field}-error"' in refused.text, alerts(refused)
    said = {"name": name, "partitions": "2", "setting:cleanup.policy": "compact,delete"}
    checked = post(client, "/topics/~create/", {**said, "action": "check"})
    assert "Nothing was created yet" in checked.text, alerts(checked)
    assert isinstance(gateway.topics([name])[name], KafkaFailure)
    created = post(client, "/topics/~create/", said)
    assert created.url.path == f"/topics/{name}/", alerts(created)
    again = post(client, "/topics/~create/", said)
    assert 'id="name-error"' in again.text, alerts(again)

    # Every tab, at once and when the collector has seen the topic.
    for tab in ("", "groups/", "settings/", "produce/", "connect/", "danger/", "partitions/"):
        assert client.get(f"/topics/{name}/{tab}").status_code == 200, tab
    wait_until(
        lambda: "compact,delete" in client.get(f"/topics/?q={name}").text, 60, "the topic's row"
    )
    assert f"\r\n{name},2,1,0,0," in client.get(f"/topics/~csv/?q={name}").text

    told = "not told by this cluster" not in client.get(f"/topics/{name}/").text
    assert told == (broker.name == "odradek")

    # Settings.
    page = f"/topics/{name}/settings/segment.bytes/"
    refused = post(client, page, {"action": "save", "value": "12"})
    assert refused.status_code == 422
    assert "segment.bytes" in alerts(refused)
    done = post(client, page, {"action": "save", "value": "2 MiB"})
    assert "segment.bytes was set." in done.text, alerts(done)
    own = client.get(f"/topics/{name}/settings/?own=1").text
    assert "<code>2097152</code>" in own
    assert "cleanup.policy" in own
    assert "segment.bytes was reset." in post(client, page, {"action": "reset"}).text

    # Records.
    sent = post(
        client,
        f"/topics/{name}/produce/",
        {"key": "k", "value": "a\r\nb", "several": "on", "partition": "1"},
    )
    assert "2 records were produced" in sent.text, alerts(sent)
    refused = post(client, f"/topics/{name}/produce/", {"key_is_null": "on", "value": "x"})
    assert "only records with a key" in alerts(refused)
    filled = client.get(f"/topics/{name}/produce/?from=1:1").text
    assert re.search(r"<textarea[^>]*>\s*b</textarea>", filled)

    # More partitions, a copy, no records, no topic.
    refused = post(client, f"/topics/{name}/partitions/", {"total": "1", "action": "add"})
    assert "never taken away" in alerts(refused)
    assert post(client, f"/topics/{name}/partitions/", {"total": "3"}).status_code == 200
    view = gateway.topics([name])[name]
    assert isinstance(view, TopicView)
    assert len(view.partitions) == 3
    filled = client.get(f"/topics/~create/?copy={name}").text
    assert re.search(r'<option value="compact,delete" selected>|"delete,compact"', filled)
    assert post(client, "/topics/~create/", {"name": copy}).status_code == 200
    emptied = post(client, "/topics/~empty/", {"topic": name, "confirm": name})
    assert f"Topic {name} was emptied." in emptied.text, alerts(emptied)
    post(client, f"/topics/{name}/settings/cleanup.policy/", {"action": "save", "value": "compact"})
    refused = post(client, "/topics/~empty/", {"topic": name, "confirm": name})
    assert "cleanup policy does not allow this" in alerts(refused)
    both = [name, copy]
    deleted = post(client, "/topics/~delete/", {"topic": both, "confirm": "delete 2 topics"})
    assert "2 topics were deleted." in deleted.text, alerts(deleted)
    assert client.get(f"/topics/{name}/").status_code == 404
