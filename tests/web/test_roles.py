"""Who may do what: every address, every operation of the API and every socket, by every role.

The tables below are decisions. An address that nobody has decided about fails the test, and so does a
decision about an address that is gone.
"""

import http.client
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import httpx
import pytest
from channels.security.websocket import WebsocketDenier
from django.urls import URLPattern, get_resolver

from dashboard.api.app import api
from dashboard.routing import websocket_urlpatterns
from tests.support.web import WebProcess

ROLES = ("stranger", "viewer", "operator", "admin")
VISITORS = {"stranger": None, "viewer": "vera", "operator": "olga", "admin": "ada"}
NOBODY = None
"""The method is not served: 405 for whoever is signed in."""

PAGES: dict[str, tuple[str | None, str | None]] = {
    # name: (who may GET at least, who may POST at least)
    "healthz": ("stranger", "stranger"),
    "readyz": ("stranger", "stranger"),
    "broker_start": ("viewer", NOBODY),
    "login": ("stranger", "stranger"),
    "password_change": ("viewer", "viewer"),
    "preferences": (NOBODY, "viewer"),
    "api_tokens": ("viewer", "viewer"),
    "api_token_revoke": (NOBODY, "viewer"),
    "overview": ("viewer", NOBODY),
    "jump": ("viewer", NOBODY),
    "samples": ("viewer", "viewer"),
    "topics": ("viewer", NOBODY),
    "topics_csv": ("viewer", NOBODY),
    "topic_names": ("viewer", NOBODY),
    "topic": ("viewer", NOBODY),
    "topic_favourite": (NOBODY, "viewer"),
    "topic_groups": ("viewer", NOBODY),
    "topic_settings": ("viewer", NOBODY),
    "topic_snippets": ("viewer", NOBODY),
    "topic_create": ("operator", "operator"),
    "topics_delete": ("operator", "operator"),
    "topics_empty": ("operator", "operator"),
    "topic_setting": ("operator", "operator"),
    "topic_danger": ("operator", NOBODY),
    "topic_partitions_add": ("operator", "operator"),
    "topic_produce": ("operator", "operator"),
    "topic_messages": ("viewer", NOBODY),
    "messages_check": ("viewer", NOBODY),
    "messages_scan": ("viewer", NOBODY),
    "messages_stop": (NOBODY, "viewer"),
    "saved_filter_save": (NOBODY, "viewer"),
    "saved_filter_delete": (NOBODY, "viewer"),
    "record": ("viewer", NOBODY),
    "record_raw": ("viewer", NOBODY),
    "export_create": (NOBODY, "viewer"),
    "exports": ("viewer", NOBODY),
    "export_file": ("viewer", NOBODY),
    "export_cancel": (NOBODY, "viewer"),
    "export_delete": (NOBODY, "viewer"),
    "reports": ("viewer", NOBODY),
    "report_create": ("operator", "operator"),
    "report": ("viewer", NOBODY),
    "report_change": ("operator", "operator"),
    "report_start": (NOBODY, "operator"),
    "report_forget": (NOBODY, "operator"),
    "report_delete": (NOBODY, "operator"),
    "report_run": ("viewer", NOBODY),
    "report_chart": ("viewer", NOBODY),
    "report_cancel": (NOBODY, "operator"),
    "report_file": ("viewer", NOBODY),
    "tail": ("viewer", "viewer"),
    "tail_topics": ("viewer", "viewer"),
    "groups": ("viewer", "viewer"),
    "groups_csv": ("viewer", "viewer"),
    "group": ("viewer", "viewer"),
    "group_reset": ("operator", "operator"),
    "group_delete": (NOBODY, "operator"),
    "group_delete_offsets": (NOBODY, "operator"),
    "transactions": ("viewer", NOBODY),
    "transaction_abort": ("operator", "operator"),
    "transaction_abort_hanging": ("operator", "operator"),
    "brokers": ("viewer", NOBODY),
    "broker": ("viewer", NOBODY),
    "broker_setting": ("admin", "admin"),
    "moves": ("viewer", NOBODY),
    "moves_plan": ("operator", "operator"),
    "moves_cancel": ("operator", "operator"),
    "leaders_elect": ("operator", "operator"),
    "problems": ("viewer", NOBODY),
    "alerts": ("viewer", "viewer"),
    "alerts_open": ("viewer", "viewer"),
    "alert_history": ("viewer", "viewer"),
    "alert_deliveries": ("viewer", "viewer"),
    "alert_delivery": ("viewer", "viewer"),
    "alert_prometheus": ("viewer", "viewer"),
    "alert_rule_create": ("operator", "operator"),
    "alert_rule": ("operator", "operator"),
    "alert_rule_switch": (NOBODY, "operator"),
    "alert_rule_delete": (NOBODY, "operator"),
    "alert_channel_create": ("operator", "operator"),
    "alert_channel": ("operator", "operator"),
    "alert_channel_test": (NOBODY, "operator"),
    "alert_channel_secret": (NOBODY, "operator"),
    "alert_channel_delete": (NOBODY, "operator"),
    "alert_silence_create": ("operator", "operator"),
    "alert_silence_end": (NOBODY, "operator"),
    "jobs": ("viewer", NOBODY),
    "job_runs": ("viewer", NOBODY),
    "job_run": ("viewer", NOBODY),
    "job_run_log": ("viewer", NOBODY),
    "job_run_cancel": (NOBODY, "operator"),
    "schedule_create": ("operator", "operator"),
    "schedule_preview": ("viewer", NOBODY),
    "schedule": ("viewer", "operator"),
    "schedule_run": (NOBODY, "operator"),
    "schedule_switch": (NOBODY, "operator"),
    "schedule_delete": (NOBODY, "operator"),
    "retention": ("viewer", NOBODY),
    "retention_topic": ("viewer", NOBODY),
    "retention_run": (NOBODY, "operator"),
    "storage": ("viewer", NOBODY),
    "audit": ("operator", "operator"),
    "audit_csv": ("operator", "operator"),
    "audit_entry": ("operator", "operator"),
    "users": ("admin", "admin"),
    "user_add": ("admin", "admin"),
    "user": ("admin", "admin"),
    "user_unlock": (NOBODY, "admin"),
    "user_password": (NOBODY, "admin"),
    "user_delete": (NOBODY, "admin"),
    "openapi-json": ("viewer", "viewer"),
    "openapi-view": ("viewer", "viewer"),
    "api_docs": ("viewer", "viewer"),
}
ELSEWHERE = {
    "metrics": "answers 401 to whoever may not: tried below",
    "logout": "would end the sessions of this run: test_account.py signs out",
    "api-root": "nothing but a 404, without asking who it is",
    "nothing": "nothing but a 404, without asking who it is",
}
OPERATIONS = {
    "GET /cluster": "viewer",
    "GET /brokers": "viewer",
    "GET /brokers/{broker_id}": "viewer",
    "GET /brokers/{broker_id}/settings": "viewer",
    "PUT /brokers/{broker_id}/settings/{key}": "admin",
    "DELETE /brokers/{broker_id}/settings/{key}": "admin",
    "GET /topics": "viewer",
    "POST /topics": "operator",
    "GET /topics/{name}": "viewer",
    "DELETE /topics/{name}": "operator",
    "POST /topics/{name}/empty": "operator",
    "POST /topics/{name}/partitions": "operator",
    "GET /topics/{name}/settings": "viewer",
    "PUT /topics/{name}/settings/{key}": "operator",
    "DELETE /topics/{name}/settings/{key}": "operator",
    "GET /topics/{name}/records": "viewer",
    "POST /topics/{name}/records": "operator",
    "GET /topics/{name}/records/{partition}/{offset}": "viewer",
    "GET /topics/{name}/records/{partition}/{offset}/raw": "viewer",
    "POST /topics/{name}/exports": "viewer",
    "GET /exports": "viewer",
    "GET /exports/{run_id}": "viewer",
    "GET /exports/{run_id}/file": "viewer",
    "DELETE /exports/{run_id}/file": "viewer",
    "POST /exports/{run_id}/cancel": "viewer",
    "GET /groups": "viewer",
    "DELETE /groups": "operator",
    "GET /groups/detail": "viewer",
    "POST /groups/reset/preview": "operator",
    "POST /groups/reset": "operator",
    "DELETE /groups/offsets": "operator",
    "GET /transactions": "viewer",
    "POST /transactions/abort": "operator",
    "POST /transactions/abort-hanging": "operator",
    "GET /alerts": "viewer",
    "GET /alerts/{alert_id}": "viewer",
    "GET /alert-rules": "viewer",
    "POST /alert-rules": "operator",
    "GET /alert-rules/{rule_id}": "viewer",
    "PATCH /alert-rules/{rule_id}": "operator",
    "DELETE /alert-rules/{rule_id}": "operator",
    "GET /alert-channels": "operator",
    "POST /alert-channels": "operator",
    "GET /alert-channels/{channel_id}": "operator",
    "PATCH /alert-channels/{channel_id}": "operator",
    "DELETE /alert-channels/{channel_id}": "operator",
    "POST /alert-channels/{channel_id}/secret": "operator",
    "POST /alert-channels/{channel_id}/test": "operator",
    "GET /alert-channels/{channel_id}/deliveries": "operator",
    "GET /silences": "viewer",
    "POST /silences": "operator",
    "DELETE /silences/{silence_id}": "operator",
    "GET /jobs": "viewer",
    "GET /jobs/{run_id}": "viewer",
    "GET /jobs/{run_id}/log": "viewer",
    "POST /jobs/{run_id}/cancel": "viewer",
    "GET /schedules": "viewer",
    "POST /schedules": "operator",
    "GET /schedules/{schedule_id}": "viewer",
    "PATCH /schedules/{schedule_id}": "operator",
    "DELETE /schedules/{schedule_id}": "operator",
    "POST /schedules/{schedule_id}/runs": "operator",
    "GET /report-kinds": "viewer",
    "GET /reports": "viewer",
    "POST /reports": "operator",
    "PATCH /reports/{name}": "operator",
    "GET /reports/{name}": "viewer",
    "DELETE /reports/{name}": "operator",
    "POST /reports/{name}/forget": "operator",
    "GET /reports/{name}/runs": "viewer",
    "POST /reports/{name}/runs": "operator",
    "GET /reports/{name}/runs/{run_id}": "viewer",
    "POST /reports/{name}/runs/{run_id}/cancel": "operator",
    "GET /reports/{name}/runs/{run_id}/result": "viewer",
    "GET /reports/{name}/runs/{run_id}/files/{file}": "viewer",
    "GET /me": "viewer",
    "GET /users": "admin",
    "POST /users": "admin",
    "GET /users/{user_id}": "admin",
    "PATCH /users/{user_id}": "admin",
    "DELETE /users/{user_id}": "admin",
    "POST /users/{user_id}/password": "admin",
    "GET /audit": "operator",
    "GET /audit/{entry_id}": "operator",
}
SOCKETS = {"tail/socket/": "viewer"}
OF_RECORDS = {
    # Addresses that show records of the topic that they name.
    "topic_messages": "GET",
    "messages_check": "GET",
    "messages_scan": "GET",
    "messages_stop": "POST",
    "record": "GET",
    "record_raw": "GET",
    "export_create": "POST",
    "start_export": "POST",
    "read_records": "GET",
    "get_record": "GET",
    "get_record_raw": "GET",
}
ARGUMENTS = {
    "name": "no-such-topic",
    "key": "retention.ms",
    "scan_id": "none",
    "partition": 0,
    "offset": 0,
    "rest": "x",
}
MISSING_ID = 99_999_999


@cache
def addresses() -> dict[str, str]:
    """All that Django serves, by name, with arguments put in; operations of the API by theirs."""
    found: dict[str, str] = {}

    def walk(resolver: Any, prefix: str) -> None:
        for pattern in resolver.url_patterns:
            path = f"{prefix}{pattern.pattern}"
            if isinstance(pattern, URLPattern):
                assert pattern.name, f"{path} has no name"
                for name, converter in pattern.pattern.converters.items():
                    value = ARGUMENTS.get(name, MISSING_ID)
                    for written in (f"<{name}>", f"<{_kind(converter)}:{name}>"):
                        path = path.replace(written, str(value))
                assert "<" not in path, path
                found[pattern.name] = path
            else:
                walk(pattern, path)

    walk(get_resolver(), "")
    return found


def _kind(converter: Any) -> str:
    return type(converter).__name__.removesuffix("Converter").lower().replace("string", "str")


class Visit:
    """Asks as one role; changes carry the CSRF token that its cookie holds."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        client.get("login/")
        client.get("account/password/")
        self.token = next(
            (value for name, value in client.cookies.items() if name.endswith("_csrf")), ""
        )

    def ask(self, method: str, path: str) -> httpx.Response:
        headers = {"X-CSRFToken": self.token} if method != "GET" else {}
        return self.client.request(method, path, headers=headers)


CANCEL = """
from dashboard.models import JobRun
from dashboard.services import jobs
for run in JobRun.objects.filter(state="queued", requested_by__isnull=False):
    jobs.cancel(run=run)
"""


@pytest.fixture(scope="module")
def nothing_left_to_be_done(web: WebProcess) -> Iterator[None]:
    """What is asked for here, by whoever may, is not done by the worker of another file."""
    yield
    web.run_python(CANCEL)


@pytest.fixture(scope="module")
def visits(web: WebProcess, nothing_left_to_be_done: None) -> Iterator[dict[str, Visit]]:
    found = {role: Visit(web.client(user)) for role, user in VISITORS.items()}
    yield found
    for visit in found.values():
        visit.client.close()


def outcome(answer: httpx.Response) -> str:
    """What the answer says about the right to ask."""
    if answer.status_code >= 500 and answer.status_code != 503:
        return f"failed with {answer.status_code}"
    location = answer.headers.get("location", "")
    if answer.status_code == 401 or (answer.status_code == 302 and "/login/?next=" in location):
        return "sign in"
    return {403: "forbidden", 405: "not served"}.get(answer.status_code, "allowed")


def expected(role: str, least: str | None) -> str:
    if least is NOBODY:
        return "sign in" if role == "stranger" else "not served"
    if ROLES.index(role) >= ROLES.index(least):
        return "allowed"
    return "sign in" if role == "stranger" else "forbidden"


def test_somebody_has_decided_about_every_address() -> None:
    operations = {name for name in addresses() if name in _operation_names()}

    assert set(addresses()) - operations == PAGES.keys() | ELSEWHERE.keys()


def test_every_page_is_open_to_whom_it_was_decided(visits: dict[str, Visit]) -> None:
    wrong = []
    for name, by_method in PAGES.items():
        for method, least in zip(("GET", "POST"), by_method, strict=True):
            for role, visit in visits.items():
                found = outcome(visit.ask(method, addresses()[name]))
                wanted = expected(role, least)
                is_open = least is NOBODY and PAGES[name][0] == "stranger"
                if found != wanted and not (is_open and found == "not served"):
                    wrong.append(f"{method} {name} as {role}: {found}, decided: {wanted}")
    assert not wrong, "\n".join(wrong)


def test_metrics_are_shown_to_an_admin(visits: dict[str, Visit]) -> None:
    found = {role: visit.ask("GET", "metrics").status_code for role, visit in visits.items()}

    assert found == {"stranger": 401, "viewer": 401, "operator": 401, "admin": 200}


@cache
def _operation_names() -> frozenset[str]:
    return frozenset(
        operation.view_func.__name__
        for _, router in api._routers
        for path_view in router.path_operations.values()
        for operation in path_view.operations
    )


def _operations() -> dict[str, str]:
    """Method and path of each, as the schema has them, with arguments put in."""
    found = {}
    for path, methods in api.get_openapi_schema()["paths"].items():
        filled = path
        for name in [piece[1:-1] for piece in path.split("/") if piece.startswith("{")]:
            filled = filled.replace(f"{{{name}}}", str(ARGUMENTS.get(name, MISSING_ID)))
        for method in methods:
            found[f"{method.upper()} {path.removeprefix('/api/v1')}"] = filled
    return found


def test_somebody_has_decided_about_every_operation() -> None:
    assert _operations().keys() == OPERATIONS.keys()


@pytest.fixture(scope="module")
def tokens(web: WebProcess, nothing_left_to_be_done: None) -> dict[str, str]:
    """A token of each role."""
    made = web.run_python(
        "import json, sys\n"
        "from dashboard.models import User\n"
        "from dashboard.services import api_tokens, audit\n"
        "users = [User.objects.get(username=name) for name in json.loads(sys.argv[1])]\n"
        "print(json.dumps({user.role: api_tokens.make(actor=audit.SYSTEM, owner=user, name='walk',"
        " role=user.role, expires_at=None)[1] for user in users}))",
        json.dumps([name for name in VISITORS.values() if name]),
    )
    found: dict[str, str] = json.loads(made)
    return found


def test_every_operation_is_open_to_whom_it_was_decided(
    web: WebProcess, tokens: dict[str, str]
) -> None:
    wrong = []
    with web.client(None) as client:
        for name, path in _operations().items():
            method = name.partition(" ")[0]
            for role in ROLES:
                headers = {"Authorization": f"Bearer {tokens[role]}"} if role in tokens else {}
                address = f"{web.url}{path}?id=no-such-group&topic=no-such-topic"
                body = {"json": {}} if method in ("POST", "PUT", "PATCH") else {}
                answer = client.request(method, address, headers=headers, **body)  # type: ignore[arg-type]
                found, wanted = outcome(answer), expected(role, OPERATIONS[name])
                if found != wanted:
                    wrong.append(f"{name} as {role}: {found}, decided: {wanted}")
                if answer.status_code >= 400:
                    assert set(answer.json()) == {"error"}, f"{name}: {answer.text}"
    assert not wrong, "\n".join(wrong)


def test_records_are_shown_of_the_topics_that_one_may_read(web: WebProcess) -> None:
    """Whatever shows records is in the table: it names a topic and a viewer may ask for it."""
    web.add_user("edda", role="viewer", readable_topics="edda-*", exportable_topics="edda-*")
    made = web.run_python(
        "import json\n"
        "from dashboard.models import User\n"
        "from dashboard.services import api_tokens, audit\n"
        "user = User.objects.get(username='edda')\n"
        "print(json.dumps(api_tokens.make(actor=audit.SYSTEM, owner=user, name='walk',"
        " role='viewer', expires_at=None)[1]))",
    )
    token = json.loads(made)
    wrong = []
    with web.client("edda") as client:
        visit = Visit(client)
        for name, method in OF_RECORDS.items():
            path = addresses()[name]
            if path.startswith("api/"):
                headers = {"Authorization": f"Bearer {token}"}
                body = {} if method == "POST" else None
                answer = httpx.request(
                    method, f"{web.url}/{path}", headers=headers, json=body, timeout=30
                )
            else:
                answer = visit.ask(method, path)
            if answer.status_code != 403:
                wrong.append(f"{method} {path}: {answer.status_code}")
        answer = visit.ask("GET", "tail/?topic=no-such-topic")
        if answer.status_code != 403:
            wrong.append(f"tail: {answer.status_code}")
    assert not wrong, "\n".join(wrong)


def test_somebody_has_decided_about_every_socket() -> None:
    served = {
        str(pattern.pattern)
        for pattern in websocket_urlpatterns
        if pattern.callback.__qualname__ != WebsocketDenier.as_asgi().__qualname__
        or str(pattern.pattern)
    }

    assert served == SOCKETS.keys()


def handshake(web: WebProcess, path: str, user: str | None, origin: str) -> int:
    """The status with which a socket is opened (101) or refused."""
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=30)
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Origin": origin,
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    if user is not None:
        headers["Cookie"] = f"{web.cookie_name}={web.sessions[user]}"
    connection.request("GET", f"{web.root_path}/{path}", headers=headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_every_socket_opens_to_whom_it_was_decided_and_from_here_alone(web: WebProcess) -> None:
    origin = f"http://127.0.0.1:{web.port}"
    for path, least in SOCKETS.items():
        for role, user in VISITORS.items():
            wanted = 101 if expected(role, least) == "allowed" else 403
            assert handshake(web, path, user, origin) == wanted, f"{path} as {role}"
        assert handshake(web, path, "ada", "http://elsewhere.example") == 403
    assert handshake(web, "no/such/socket/", "ada", origin) == 403
