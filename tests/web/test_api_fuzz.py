"""The API against its own document: requests made of it, right, nearly right and junk, by everybody.

A broker and a web process of its own: an operator changes things here that others look at.
"""

import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings

from dashboard.gateway import Gateway
from tests.support.odradek import OdradekBroker
from tests.support.openapi import Operation, Request, Requests, faults, operations
from tests.support.processes import wait_until
from tests.support.web import WebProcess
from tests.web.pages import GROUP, TOPIC, make_pages

EXAMPLES = {
    "few": {"anonymous": 2, "viewer": 3, "operator": 3},
    "many": {"anonymous": 3, "viewer": 10, "operator": 10},
}
"""Requests of each operation: always a few, all of them where time matters less."""
DEPTHS = pytest.mark.parametrize("depth", ["few", pytest.param("many", marks=pytest.mark.slow)])
MAX_TRIES = 5
WORDS = [
    TOPIC, TOPIC, TOPIC, GROUP, GROUP, "retention.ms", "cleanup.policy", "compact", "86400000", "-1",
    "olga", "vera", "nora", "*", "0", "1", "newest", "json.amount > 1", "earliest", "end", "+1",
    "*/5 * * * *", "UTC", "2026-01-15T11:30:00Z", "retention", "max_lag",
]  # fmt: skip
BOUNDS = {"partitions": 20, "total": 20, "replication_factor": 3}
"""The cluster would make a hundred thousand partitions when asked to."""
READ_FIRST_AND_DELETE_LAST = ["GET", "POST", "PUT", "PATCH", "DELETE"]
ROLES = {"viewer": "vera", "operator": "olga", "admin": "ada"}
_ERROR = {"$ref": "#/components/schemas/Error"}
_TOKENS = """
import json, sys
from dashboard.models import User
from dashboard.services import api_tokens, audit
print(json.dumps({role: api_tokens.make(actor=audit.SYSTEM, owner=User.objects.get(username=name),
      name="fuzz", role=role, expires_at=None)[1] for role, name in json.loads(sys.argv[1]).items()}))
"""


class Api:
    """The API of an appliance with something in it, and what it says of itself."""

    def __init__(self, web: WebProcess) -> None:
        tokens = json.loads(web.run_python(_TOKENS, json.dumps(ROLES)))
        self.clients = {
            role: httpx.Client(base_url=web.url, headers=headers, timeout=60)
            for role, headers in [
                ("anonymous", {}),
                *((role, {"Authorization": f"Bearer {one}"}) for role, one in tokens.items()),
            ]
        }
        self.gateway = Gateway(web.environment["ODRADEK_CLUSTER"])
        self.operations = operations(self.get("openapi.json"))
        self.made = Requests(WORDS, BOUNDS)

    def close(self) -> None:
        for client in self.clients.values():
            client.close()

    def get(self, path: str) -> Any:
        return self.clients["admin"].get(f"/api/v1/{path}").json()

    def has_seen_all(self) -> bool:
        """What was made is in the snapshot that answers come from."""
        topics = self.get(f"topics?search={TOPIC}").get("topics")
        groups = self.get("groups").get("groups")
        return bool(topics and groups)

    def ask(self, role: str, request: Request) -> httpx.Response:
        """A 503 says itself that the next try may succeed: one that stays is an answer."""
        answers: list[httpx.Response] = []

        def is_final() -> bool:
            answer = self.clients[role].request(
                request.method,
                request.path,
                content=request.body,
                headers={"Content-Type": "application/json"},
            )
            answers.append(answer)
            return answer.status_code != 503 or len(answers) == MAX_TRIES

        wait_until(is_final, 300, f"an answer to {request}", every=0.5)
        return answers[-1]

    def state(self) -> dict[str, Any]:
        """What requests can change, as an admin sees it; none of what changes by itself."""
        schedules = self.get("schedules")["schedules"]
        entries = self.get("audit?who=vera")["entries"]
        return {
            **{name: self.get(name) for name in ("alert-rules", "silences", "jobs", "reports")},
            "users": [{**one, "last_login_ms": 0} for one in self.get("users")["users"]],
            "settings": self.get(f"topics/{TOPIC}/settings"),
            "topics": self.gateway.cluster().topics,
            "records": self.get(f"topics/{TOPIC}/records?start=oldest").get("records"),
            "schedules": {
                one["id"]: (one["name"], one["is_on"], one["words"]) for one in schedules
            },
            "done by vera": [one for one in entries if not one["failure"]],
        }


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line a request says nothing here
    directory = tmp_path_factory.mktemp("fuzz")
    with (
        OdradekBroker(directory) as broker,
        WebProcess(directory, broker.bootstrap, data=broker.data) as web,
    ):
        make_pages(web)
        api = Api(web)
        wait_until(api.has_seen_all, 60, "topic and group in a snapshot")
        yield api
        api.close()


@DEPTHS
def test_every_answer_to_an_operator_is_documented(api: Api, depth: str) -> None:
    """No request makes the API fail, and what it answers is in its document."""
    seen = _fuzz_all(api, "operator", depth)

    # Many of them do something in the course of it: these are not only refusals.
    done = [one for one, statuses in seen.items() if statuses & {200, 201}]
    least = len(api.operations) // (2 if depth == "many" else 5)
    assert len(done) > least, sorted(map(str, done))


@DEPTHS
def test_a_viewer_changes_nothing(api: Api, depth: str) -> None:
    """Everything is as it was, and nobody says that it was done. Exports alone are theirs to make."""
    before = api.state()
    seen = _fuzz_all(api, "viewer", depth, but="/exports")

    for operation, statuses in seen.items():
        if operation.changes:
            # 404: there is no such address, or nothing that is the viewer's own.
            assert statuses <= {403, 404, 431}, f"{operation}: {statuses}"
            may_be_none = depth == "few" or operation.path.endswith("/cancel")
            assert 403 in statuses or may_be_none, f"{operation}: {statuses}"
    assert api.state() == before


@DEPTHS
def test_a_stranger_is_told_nothing(api: Api, depth: str) -> None:
    seen = _fuzz_all(api, "anonymous", depth)

    assert {status for statuses in seen.values() for status in statuses} <= {401, 404, 431}
    assert depth == "few" or all(401 in statuses for statuses in seen.values())


def test_an_address_that_is_too_long_is_refused_as_documented(api: Api) -> None:
    for operation in api.operations:
        request = Request(operation.method, f"/api/v1/groups/detail?id={'x' * 20_000}", None)

        answer = api.ask("viewer", request)

        assert (answer.status_code, _troubles(operation, answer)) == (431, [])


def test_a_method_that_is_not_served_is_refused_in_the_same_shape(api: Api) -> None:
    served: dict[str, set[str]] = {}
    for operation in api.operations:
        served.setdefault(operation.path, set()).add(operation.method)
    for operation in api.operations:
        path = operation.path.replace("{file}", "result.csv")
        while "{" in path:
            path = path[: path.index("{")] + "1" + path[path.index("}") + 1 :]
        for method in {"GET", "PUT", "PATCH", "DELETE", "POST"} - served[operation.path]:
            answer = api.clients["operator"].request(method, path)

            assert answer.status_code == 405, f"{method} {path}"
            assert set(answer.headers["Allow"].split(", ")) >= served[operation.path]
            assert faults(operation, _ERROR, answer.json()) == []


def _fuzz_all(api: Api, role: str, depth: str, but: str = "nothing") -> dict[Operation, set[int]]:
    """The statuses that each operation answered, but of those with these words in their path."""
    troubles: list[str] = []
    seen = {
        operation: _fuzz(api, role, EXAMPLES[depth][role], operation, troubles)
        for operation in sorted(
            api.operations, key=lambda one: READ_FIRST_AND_DELETE_LAST.index(one.method)
        )
        if but not in operation.path
    }
    assert not troubles, "\n".join(troubles)
    return seen


def _fuzz(
    api: Api, role: str, examples: int, operation: Operation, troubles: list[str]
) -> set[int]:
    seen: set[int] = set()

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(api.made.of(operation))
    def ask(request: Request) -> None:
        answer = api.ask(role, request)
        seen.add(answer.status_code)
        for trouble in _troubles(operation, answer):
            body = (request.body or b"")[:200]
            asked = f"{role}: {request.method} {request.path[:200]} {body!r}"
            troubles.append(f"{asked}: {answer.status_code} {answer.text[:200]!r}: {trouble}")

    ask()
    return seen


def _troubles(operation: Operation, answer: httpx.Response) -> list[str]:
    if answer.status_code >= 500:
        return ["the API failed"]
    content = operation.content(answer.status_code)
    if content is None:
        return ["this status is not documented"]
    kind = answer.headers["Content-Type"].partition(";")[0]
    if kind not in content:
        return [f"{kind} is not documented for it"]
    if kind != "application/json":
        return []
    return faults(operation, content[kind]["schema"], answer.json())
