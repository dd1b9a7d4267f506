"""Exports by the whole appliance: asked for on the page, written by the real worker, cancelled, lost."""

import base64
import csv
import io
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer

from dashboard.gateway import Gateway
from tests.appliance.test_serve_web import Appliance, is_gone, token_of
from tests.support import processes

pytestmark = pytest.mark.slow
PASSWORD = "correct-horse-9"
LARGE = 2**63 - 1
# Tens of milliseconds for each record: an export that is still going when somebody looks.
SLOW_FILTER = "json.all(x, !json.exists(y, x == y + 1))"
SLOW_VALUE = json.dumps([1] * 450).encode()
Header = tuple[str, bytes | None]
HARD: list[tuple[bytes | None, bytes | None, list[Header]]] = [
    (None, None, []),
    (b"", b"", []),
    (b"\xff\x00", b"\x00\x01\xfe", [("h", b"1"), ("h", None), ("h", b"\xff"), ("", b"")]),
    (b"number", json.dumps({"n": LARGE}).encode(), []),
    (b"lines", 'a,"b"\r\nc\u2028d\ud83d\ude00'.encode("utf-8", "surrogatepass"), []),
    (b"=1+1", "ß–€".encode(), [("ß", "ü".encode())]),
]


@pytest.fixture(scope="module")
def appliance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Appliance]:
    data = tmp_path_factory.mktemp("exports") / "data"
    one = Appliance(data, settings={"ODRADEK_ADMIN_PASSWORD": PASSWORD})
    try:
        yield one.start()
    finally:
        one.close()


@pytest.fixture
def admin(appliance: Appliance) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=appliance.url, timeout=60, follow_redirects=True) as client:
        form = {"username": "admin", "password": PASSWORD}
        token = token_of(client, "/login/")
        page = client.post("/login/", data={**form, "csrfmiddlewaretoken": token})
        assert page.url.path == "/"
        yield client


def make_topic(appliance: Appliance, name: str, records: list[tuple[Any, Any, Any]]) -> None:
    bootstrap = "{}:{}".format(*appliance.kafka)
    Gateway(bootstrap).create_topics([name], partitions=1)
    producer = Producer({"bootstrap.servers": bootstrap})
    for key, value, headers in records:
        producer.produce(name, value, key, headers=headers)
    assert producer.flush(60) == 0


def post(client: httpx.Client, path: str, data: dict[str, str]) -> httpx.Response:
    token = token_of(client, "/account/password/")
    return client.post(path, data={**data, "csrfmiddlewaretoken": token})


def export(client: httpx.Client, topic: str, query: str = "", format_: str = "ndjson") -> int:
    """Asked for as on the page; the run's number."""
    page = post(client, f"/topics/{topic}/messages/~export/?{query}", {"format": format_})
    assert page.url.path == "/exports/"
    found = re.search(r'<td class="number">(\d+)</td>', page.text)
    assert found is not None
    return int(found[1])


def run_of(client: httpx.Client, number: int) -> dict[str, Any]:
    run: dict[str, Any] = client.get(f"/api/v1/jobs/{number}").json()
    return run


def wait_for(client: httpx.Client, number: int, *states: str) -> dict[str, Any]:
    processes.wait_until(
        lambda: run_of(client, number)["state"] in states, 180, f"{states}", every=0.2
    )
    return run_of(client, number)


def wait_for_progress(client: httpx.Client, number: int) -> None:
    processes.wait_until(
        lambda: re.match("[1-9].* records of", run_of(client, number)["progress_text"]) is not None,
        180,
        "progress",
        every=0.2,
    )


def files(appliance: Appliance, number: int) -> list[str]:
    return sorted(path.name for path in (appliance.data / "exports").glob(f"export-{number}.*"))


def bytes_of(encoding: str, text: str) -> bytes | None:
    return {
        "null": lambda: None,
        "text": text.encode,
        "base64": lambda: base64.b64decode(text),
    }[encoding]()


def from_json(value: Any) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else base64.b64decode(value["base64"])


@pytest.mark.timeout(600)
def test_what_was_written_is_what_comes_back(appliance: Appliance, admin: httpx.Client) -> None:
    make_topic(appliance, "hard", HARD)
    ndjson = export(admin, "hard", "start=oldest")
    table = export(admin, "hard", "start=oldest", "csv")
    for number in (ndjson, table):
        assert wait_for(admin, number, "ok", "failed")["state"] == "ok"

    text = admin.get(f"/exports/{ndjson}/file/")
    assert text.headers["content-disposition"] == f'attachment; filename="hard-{ndjson}.ndjson"'
    rows = [json.loads(line) for line in text.content.split(b"\n")[:-1]]
    assert [
        (
            from_json(row["key"]),
            from_json(row["value"]),
            [(one["name"], from_json(one["value"])) for one in row["headers"]],
        )
        for row in rows
    ] == HARD
    assert [row["offset"] for row in rows] == list(range(len(HARD)))
    assert str(LARGE) in rows[3]["value"]

    sheet = admin.get(f"/exports/{table}/file/").content.decode()
    cells = list(csv.DictReader(io.StringIO(sheet, newline="")))
    assert [
        (
            bytes_of(row["key_encoding"], row["key"]),
            bytes_of(row["value_encoding"], row["value"]),
            [(name, from_json(value)) for name, value in json.loads(row["headers"] or "[]")],
        )
        for row in cells
    ] == HARD

    part = admin.get(f"/exports/{ndjson}/file/", headers={"Range": "bytes=-20"})
    assert (part.status_code, part.content) == (206, text.content[-20:])


@pytest.mark.timeout(600)
def test_an_export_is_cancelled_while_it_runs_and_outlives_its_worker_as_lost(
    appliance: Appliance, admin: httpx.Client
) -> None:
    make_topic(appliance, "slow", [(None, SLOW_VALUE, [])] * 20_000)
    query = str(httpx.QueryParams({"start": "oldest", "filter": SLOW_FILTER}))

    cancelled = export(admin, "slow", query)
    wait_for_progress(admin, cancelled)
    page = admin.get("/exports/").text
    assert "records of" in page
    post(admin, f"/exports/{cancelled}/cancel/", {})
    wait_for(admin, cancelled, "cancelled")
    processes.wait_until(lambda: not files(appliance, cancelled), 60, "no file is left")
    assert admin.get(f"/exports/{cancelled}/file/").status_code == 404

    lost = export(admin, "slow", query)
    wait_for_progress(admin, lost)
    worker = appliance.children()["worker"]
    children = [
        int(pid)
        for path in Path(f"/proc/{worker}/task").glob("*/children")
        for pid in path.read_text().split()
    ]
    assert children
    os.kill(worker, signal.SIGKILL)
    found = wait_for(admin, lost, "lost")
    assert "Its worker ended" in found["error"]
    assert all(map(is_gone, children))
    assert "lost" in admin.get("/exports/").text
    assert admin.get(f"/exports/{lost}/file/").status_code == 404

    # Those who come after it are served, and what it had begun does not lie there for long.
    after = export(admin, "slow", "start=oldest")
    assert wait_for(admin, after, "ok", "failed")["state"] == "ok"
    assert files(appliance, lost) == []


@pytest.mark.timeout(300)
def test_who_may_not_export_is_refused(appliance: Appliance, admin: httpx.Client) -> None:
    make_topic(appliance, "secret", [(b"k", b"v", [])])
    new = {"username": "vera", "role": "viewer", "exportable_topics": "orders-*"}
    token = token_of(admin, "/account/password/")
    made = admin.post("/api/v1/users", json=new, headers={"X-CSRFToken": token}).json()
    number = export(admin, "secret", "start=oldest")
    wait_for(admin, number, "ok")
    with httpx.Client(base_url=appliance.url, timeout=60, follow_redirects=True) as vera:
        token = token_of(vera, "/login/")
        form = {"username": "vera", "password": made["password"], "csrfmiddlewaretoken": token}
        vera.post("/login/", data=form)
        token = token_of(vera, "/account/password/")
        change = {"old_password": made["password"], "new_password1": "another-horse-8"}
        change |= {"new_password2": "another-horse-8", "csrfmiddlewaretoken": token}
        vera.post("/account/password/", data=change)
        assert vera.get("/topics/secret/messages/").status_code == 200
        assert post(vera, "/topics/secret/messages/~export/", {"format": "csv"}).status_code == 403
        assert vera.get(f"/exports/{number}/file/").status_code == 404
        assert "secret" not in vera.get("/exports/").text
