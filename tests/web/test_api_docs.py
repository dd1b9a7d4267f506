"""The REST API on a real cluster, and the page that explains it in a real browser."""

import base64
import json
from collections.abc import Callable, Iterator

import httpx
import pytest
from playwright.sync_api import expect

from tests.support.browser import Visitor
from tests.support.processes import wait_until
from tests.support.web import WebProcess

LARGE = 2**53 + 1
"""A double rounds it."""


@pytest.fixture
def api(web: WebProcess) -> Iterator[httpx.Client]:
    """With a token of an operator."""
    token = web.run_python(
        "from dashboard.models import User\n"
        "from dashboard.services import api_tokens, audit\n"
        "print(api_tokens.make(actor=audit.SYSTEM, owner=User.objects.get(username='olga'),"
        " name='test', role='operator', expires_at=None)[1])"
    ).strip()
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=f"{web.url}/api/v1/", headers=headers, timeout=30) as client:
        yield client


def test_the_life_of_a_topic_and_its_readers_by_the_api(
    api: httpx.Client, new_topic_name: Callable[[], str]
) -> None:
    name, group = new_topic_name(), f"readers/of {new_topic_name()}"

    made = api.post(
        "topics", json={"name": name, "partitions": 2, "settings": {"retention.ms": "86400000"}}
    )
    assert made.status_code == 201, made.text
    assert [one["index"] for one in made.json()["partitions"]] == [0, 1]
    again = api.post("topics", json={"name": name})
    assert (again.status_code, again.json()["error"]["code"]) == (409, "TOPIC_ALREADY_EXISTS")

    records = [
        {"key": "k", "value": json.dumps({"n": LARGE}), "headers": [["h", "1"], ["h", None]]},
        {"value_base64": base64.b64encode(b"\xff\x00").decode()},
        {"key": "tombstone"},
    ]
    produced = api.post(f"topics/{name}/records", json={"records": records, "partition": 1})
    assert produced.json()["places"] == [
        {"partition": 1, "count": 3, "first_offset": 0, "last_offset": 2}
    ], produced.text

    read = api.get(f"topics/{name}/records", params={"start": "oldest", "limit": 2}).json()
    assert [one["offset"] for one in read["records"]] == [0, 1]
    assert str(LARGE) in read["records"][0]["value"]["text"]
    assert read["records"][0]["headers"] == [
        {"name": "h", "value": "1"},
        {"name": "h", "value": None},
    ]
    assert read["records"][1]["value"]["shown_as"] == "hex"
    params = {"start": "oldest", "cursor": read["next"]}
    rest = api.get(f"topics/{name}/records", params=params).json()
    assert [(one["offset"], one["value"]["shown_as"]) for one in rest["records"]] == [(2, "null")]
    assert rest["next"] is None
    found = api.get(f"topics/{name}/records", params={"filter": f"json.n == {LARGE}"})
    assert [one["offset"] for one in found.json()["records"]] == [0], found.text
    wrong = api.get(f"topics/{name}/records", params={"filter": "json.n =="})
    assert wrong.status_code == 422
    assert api.get(f"topics/{name}/records/1/1/raw").content == b"\xff\x00"
    assert api.get(f"topics/{name}/records/1/7").status_code == 404

    preview = api.post(
        "groups/reset/preview", params={"id": group}, json={"to": "end", "topic": name}
    ).json()
    assert preview["is_possible"], preview
    assert {move["new"] for move in preview["moves"]} == {0, 3}
    moved = api.post("groups/reset", params={"id": group}, json={"plan": preview["plan"]})
    assert moved.json() == {"moved": 2}, moved.text
    wait_until(
        lambda: api.get("groups/detail", params={"id": group}).status_code == 200,
        60,
        "the group in a snapshot",
    )
    assert api.get("groups/detail", params={"id": group}).json()["lag"] == 0
    assert api.delete("groups", params={"id": group}).json() == {"done": True}

    settings = api.get(f"topics/{name}/settings").json()
    own = {one["name"]: one["value"] for one in settings if one["source"] == "DYNAMIC_TOPIC_CONFIG"}
    assert own == {"retention.ms": "86400000"}
    assert api.put(f"topics/{name}/settings/retention.ms", json={"value": "x"}).status_code == 422
    assert api.delete(f"topics/{name}/settings/retention.ms").status_code == 200
    grown = api.post(f"topics/{name}/partitions", json={"total": 3}).json()
    assert len(grown["partitions"]) == 3
    assert api.post(f"topics/{name}/empty").json() == {"done": True}
    assert api.get(f"topics/{name}/records").json()["records"] == []

    listed = api.get("topics", params={"search": name, "limit": 1}).json()
    assert [one["name"] for one in listed["topics"]] == [name]
    assert api.delete(f"topics/{name}").json() == {"done": True}
    assert api.delete(f"topics/{name}").status_code == 404

    entries = api.get("audit", params={"target": name, "source": "api"}).json()["entries"]
    assert {entry["action"] for entry in entries} >= {
        "topic.create", "topic.produce", "topic.settings", "topic.partitions", "topic.empty",
        "topic.delete",
    }  # fmt: skip


def test_the_documentation_works_in_a_browser_without_the_network(
    visit: Callable[..., Visitor],
) -> None:
    """Swagger UI comes from here, and asks with the person's own session."""
    page = visit("olga").page
    page.goto("api/v1/docs")

    expect(page.get_by_role("heading", name="Odradek")).to_be_visible()
    page.get_by_role("button", name="GET /api/v1/me").first.click()
    page.get_by_role("button", name="Try it out").click()
    page.get_by_role("button", name="Execute").click()
    expect(page.locator(".live-responses-table .highlight-code").first).to_contain_text("olga")
