"""The REST API: who may call it, how it refuses, and what its tokens are worth."""

import datetime as dt
import json
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from ninja import Schema

from dashboard.api.app import api
from dashboard.bad_tokens import LIMIT, MAX_ADDRESSES, WINDOW_MS, BadTokens
from dashboard.models import ApiToken, AuditEntry, Role, User
from dashboard.services import api_tokens, audit
from dashboard.services import users as users_service
from tests.dashboard.alerting.conftest import ManualClock

pytestmark = pytest.mark.django_db
ACTOR = audit.Actor("ada", AuditEntry.Source.PAGE)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """Bad tokens of other tests are not counted."""
    clock = ManualClock()
    monkeypatch.setattr("dashboard.api.auth.bad_tokens", BadTokens(clock))
    return clock


@pytest.fixture
def ada() -> User:
    return User.objects.create_user("ada", password="correct-horse-9", role=Role.ADMIN)


def make(owner: User, role: str = Role.ADMIN, days: int | None = 1) -> tuple[ApiToken, str]:
    expires = None if days is None else timezone.now() + dt.timedelta(days=days)
    return api_tokens.make(actor=ACTOR, owner=owner, name="ci", role=role, expires_at=expires)


def ask(token: str | None, path: str = "me", method: str = "GET", body: Any = None) -> Any:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return Client(enforce_csrf_checks=True).generic(
        method,
        f"/api/v1/{path}",
        b"" if body is None else json.dumps(body),
        content_type="application/json",
        headers=headers,
    )


def test_only_the_hash_of_a_token_is_kept(ada: User) -> None:
    token, text = make(ada)

    assert text.startswith("odk_")
    assert text not in str(vars(token))
    assert all(text not in str(vars(entry)) for entry in AuditEntry.objects.all())
    assert ask(text).json()["username"] == "ada"


def test_a_stranger_is_told_what_to_send() -> None:
    for token in (None, "odk_wrong", "", "x" * 5000):
        answer = ask(token)

        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "unauthenticated"
        assert answer["WWW-Authenticate"].startswith("Bearer")


def test_a_token_is_worth_the_smaller_role(ada: User) -> None:
    _, text = make(ada, Role.OPERATOR)
    assert ask(text).json()["role"] == "operator"
    assert ask(text, "users").status_code == 403

    User.objects.create_user("root", role=Role.ADMIN)
    users_service.change(actor=ACTOR, user=ada, role=Role.VIEWER)

    assert ask(text).json()["role"] == "viewer"
    assert ask(text, "audit").status_code == 403
    ada.refresh_from_db()
    assert ada.role == Role.VIEWER


def test_a_token_cannot_be_more_than_its_owner() -> None:
    vera = User.objects.create_user("vera", role=Role.VIEWER)

    with pytest.raises(api_tokens.TokenRefused, match="at most be viewer"):
        make(vera, Role.OPERATOR)


def test_a_token_ends_by_revocation_expiry_and_with_its_owner(ada: User) -> None:
    revoked, first = make(ada)
    api_tokens.revoke(actor=ACTOR, token=revoked)
    expired, second = make(ada)
    ApiToken.objects.filter(pk=expired.pk).update(expires_at=timezone.now())
    _, third = make(ada, days=None)
    assert ask(third).status_code == 200
    ada.is_active = False
    ada.save(update_fields=["is_active"])

    assert [ask(text).status_code for text in (first, second, third)] == [401, 401, 401]


def test_when_and_from_where_a_token_was_used_is_kept(ada: User) -> None:
    token, text = make(ada)
    ask(text)

    token.refresh_from_db()
    assert token.last_used_at is not None
    assert token.last_address == "127.0.0.1"


def test_a_session_needs_the_csrf_token_for_changes(ada: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(ada, "django.contrib.auth.backends.ModelBackend")
    body = json.dumps({"username": "nora", "role": "viewer"})

    assert client.get("/api/v1/me").json()["username"] == "ada"
    refused = client.post("/api/v1/users", body, content_type="application/json")
    client.get("/account/password/")
    csrf = next(morsel.value for name, morsel in client.cookies.items() if name.endswith("_csrf"))
    made = client.post(
        "/api/v1/users", body, content_type="application/json", headers={"X-CSRFToken": csrf}
    )

    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
    assert made.status_code == 201
    assert User.objects.get(username="nora").check_password(made.json()["password"])
    assert AuditEntry.objects.get(action="user.add", failure="").source == "api"


def test_a_due_password_is_said_in_the_shape_of_errors(ada: User) -> None:
    _, text = make(ada)
    users_service.reset_password(actor=ACTOR, user=ada)

    answer = ask(text)

    assert answer.status_code == 403
    assert "password has to be changed" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "where"),
    [
        ("GET", "nowhere", None, 404, None),
        ("GET", "", None, 404, None),
        ("GET", "alerts/1%0A", None, 404, None),
        ("GET", "users/999999", None, 404, None),
        ("PUT", "users", {}, 405, None),
        ("GET", "topics?sort=upside", None, 422, "query.sort"),
        ("GET", "topics?page=0", None, 422, "query.page"),
        ("GET", "audit?since=soon", None, 422, "query.since"),
        ("POST", "users", {"role": "king", "username": "k"}, 422, "body.new.role"),
        ("POST", "users", {"username": "ada"}, 409, None),
        ("POST", "groups/reset/preview?id=g", {}, 422, "body"),
        ("GET", "topics/t/records?start=offset", None, 422, "query.offset"),
        ("GET", "topics/t/records?start=time&time=soon", None, 422, "query.time"),
        ("GET", "topics/t/records?cursor=%00", None, 422, "query.cursor"),
        ("GET", "topics/t/records?" + "partition=0&" * 1001, None, 400, None),
        (
            "POST",
            "topics/t/records",
            {"records": [{"value_base64": "\u1234"}]},
            422,
            "body.records.0.value_base64",
        ),
    ],
)
def test_every_refusal_has_one_shape(
    ada: User, method: str, path: str, body: Any, status: int, where: str | None
) -> None:
    _, text = make(ada)

    answer = ask(text, path, method, body)

    error = answer.json()["error"]
    assert answer.status_code == status, error
    assert set(error) == {"code", "message", "hint", "details"}
    assert where is None or [one["where"] for one in error["details"]] == [where]


def test_what_is_no_json_is_said(ada: User) -> None:
    _, text = make(ada)

    answer = Client().post(
        "/api/v1/users",
        "{",
        content_type="application/json",
        headers={"Authorization": f"Bearer {text}"},
    )

    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "malformed")


def test_times_come_twice_and_large_numbers_whole(ada: User) -> None:
    entry = audit.record(ACTOR, "topic.produce", "orders", after={"offset": 2**63 - 1})
    AuditEntry.objects.filter(pk=entry.pk).update(
        at=dt.datetime(2026, 1, 15, 11, 30, 0, 250_000, tzinfo=dt.UTC)
    )
    _, text = make(ada)

    answer = ask(text, f"audit/{entry.pk}")

    assert answer.json()["at_ms"] == 1768476600250
    assert answer.json()["at_time"] == "2026-01-15T11:30:00.250Z"
    assert b'"offset": 9223372036854775807' in answer.content


def test_the_schema_documents_every_refusal_and_both_ways_in() -> None:
    schema = api.get_openapi_schema()

    operations = [one for path in schema["paths"].values() for one in path.values()]
    assert len(operations) > 30
    for operation in operations:
        assert operation["security"] == [{"Token": []}, {"Session": []}]
        refusals = [code for code in operation["responses"] if int(code) >= 400]
        assert len(refusals) == 10, operation["operationId"]


def test_no_two_shapes_share_a_name() -> None:
    """The document has one of each name: the other would be told of wrongly."""
    names: dict[str, set[type]] = {}

    def walk(shape: type) -> None:
        for one in shape.__subclasses__():
            if one.__module__.startswith("dashboard.api."):
                names.setdefault(one.__name__, set()).add(one)
            walk(one)

    walk(Schema)
    assert {name: found for name, found in names.items() if len(found) > 1} == {}


def test_who_tries_many_tokens_is_told_to_stop_and_written_down_once(
    ada: User, clock: ManualClock
) -> None:
    statuses = [ask("odk_wrong").status_code for _ in range(LIMIT + 5)]
    assert statuses == [401] * (LIMIT - 1) + [429] * 6
    assert AuditEntry.objects.filter(action="token.guess", actor_name="nobody").count() == 1
    # Whoever has a good one from the same address, maybe a proxy's, is not shut out.
    _, text = make(ada)
    assert ask(text).status_code == 200
    clock.now_ms += WINDOW_MS
    assert ask("odk_wrong").status_code == 401


def test_the_table_of_bad_tokens_is_bounded() -> None:
    counts = BadTokens(ManualClock())
    for number in range(MAX_ADDRESSES + 10):
        counts.note(f"address {number}")
    assert counts.note(f"address {MAX_ADDRESSES + 9}") == 2
    assert counts.note("address 0") == 1


def test_the_schema_is_for_tokens_too_and_strangers_sign_in_first(ada: User) -> None:
    _, text = make(ada)
    assert "/api/v1/topics" in ask(text, "openapi.json").json()["paths"]
    refused = ask("odk_wrong", "openapi.json")
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthenticated")
    assert ask(None, "docs")["Location"].startswith("/login/?next=/api/v1/docs")
