"""The audit log as it is searched, told and carried away."""

import csv
import datetime as dt
import io

import pytest
from django.test import Client
from django.utils import timezone

from dashboard.models import AuditEntry, User
from dashboard.selectors import audit as selector
from dashboard.selectors.audit import AuditSearch
from dashboard.services import audit

pytestmark = pytest.mark.django_db
ADA = audit.Actor("ada", AuditEntry.Source.PAGE, address="10.0.0.9")
OLGA = audit.Actor("olga", AuditEntry.Source.API, address="10.0.0.10")


@pytest.fixture
def operator() -> Client:
    client = Client()
    user = User.objects.create_user("olga", role="operator", time_zone="Europe/Berlin")
    client.force_login(user, "django.contrib.auth.backends.ModelBackend")
    AuditEntry.objects.all().delete()
    return client


def found(**wanted: object) -> list[str]:
    rows = selector.search(AuditSearch(**wanted))  # type: ignore[arg-type]
    return sorted(f"{row.action} {row.target}" for row in rows)


def test_everything_given_has_to_hold() -> None:
    audit.record(ADA, "topic.create", "orders")
    audit.record(ADA, "topic.delete", "orders", failure="refused")
    audit.record(OLGA, "group.reset", "billing of orders")
    old = audit.record(OLGA, "topicish", "x")
    AuditEntry.objects.filter(pk=old.pk).update(at=timezone.now() - dt.timedelta(days=2))
    yesterday_ms = int((timezone.now() - dt.timedelta(days=1)).timestamp() * 1000)

    assert len(found()) == 4
    assert found(text="ord ADA") == ["topic.create orders", "topic.delete orders"]
    assert found(text="0.0.10") == ["group.reset billing of orders", "topicish x"]
    assert found(who="olga", source="api", since_ms=yesterday_ms) == [
        "group.reset billing of orders"
    ]
    assert found(until_ms=yesterday_ms) == ["topicish x"]
    assert found(action="topic") == ["topic.create orders", "topic.delete orders"]
    assert found(target="orders", only_refused=True) == ["topic.delete orders"]


def test_pages_follow_each_other_without_a_gap(operator: Client) -> None:
    for number in range(selector.PAGE_SIZE + 3):
        audit.record(ADA, "topic.create", f"t{number:03}")

    first, second = (selector.page(AuditSearch(), number) for number in (1, 2))

    assert (first.has_next, second.has_next) == (True, False)
    targets = [entry.target for entry in (*first.entries, *second.entries)]
    assert targets == [f"t{number:03}" for number in range(52, -1, -1)]
    assert 'rel="next" href="?q=t&amp;page=2"' in operator.get("/audit/?q=t").content.decode()


def test_a_difference_is_told_value_by_value() -> None:
    entry = audit.record(
        ADA,
        "topic.settings",
        "orders",
        before={"retention.ms": "1", "nested": {"a": [1, 2], "gone": True}},
        after={"retention.ms": "2", "nested": {"a": [1, 2]}},
    )

    told = [(one.name, one.before, one.after) for one in selector.difference(entry)]

    assert told == [
        ("nested.a", "[1, 2]", "[1, 2]"),
        ("nested.gone", "true", None),
        ("retention.ms", "1", "2"),
    ]


def test_csv_holds_what_was_searched_for_and_no_formula(operator: Client) -> None:
    audit.record(audit.Actor("=cmd()", "page"), "user.sign_in", "@x", failure="wrong")
    audit.record(ADA, "topic.create", 'a,"b"\nc', after={"partitions": 2**63})

    answer = operator.get("/audit/csv/?refused=on")
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    everything = list(csv.DictReader(io.StringIO(operator.get("/audit/csv/").content.decode())))

    assert [(row["who"], row["target"]) for row in rows] == [("'=cmd()", "'@x")]
    assert everything[0]["target"] == 'a,"b"\nc'
    assert everything[0]["after"] == '{"partitions": 9223372036854775808}'
    assert everything[0]["time"].endswith(("+01:00", "+02:00"))
    assert everything[0]["time_utc"].endswith("Z")


def test_a_range_is_read_in_the_zone_that_the_page_names(operator: Client) -> None:
    entry = audit.record(ADA, "topic.create", "orders")
    at = dt.datetime(2026, 1, 15, 11, 30, tzinfo=dt.UTC)
    AuditEntry.objects.filter(pk=entry.pk).update(at=at)

    inside = operator.get("/audit/?since=2026-01-15T12:00&until=2026-01-15T13:00").content
    outside = operator.get("/audit/?since=2026-01-15T11:00&until=2026-01-15T12:00").content

    assert b"2026-01-15 12:30:00" in inside
    assert b"in Europe/Berlin" in inside
    assert b"No entry matches" in outside


def test_a_time_that_is_none_is_said_at_its_field(operator: Client) -> None:
    page = operator.get("/audit/?since=soon").content.decode()

    assert "From: &#x27;soon&#x27; is no time" in page


def test_hostile_names_stay_text(operator: Client) -> None:
    entry = audit.record(
        audit.Actor("<script>alert(1)</script>", "page"), "user.sign_in", "<img src=x onerror=y>"
    )

    for path in ("/audit/", f"/audit/{entry.pk}/"):
        content = operator.get(path).content
        assert b"<script>alert" not in content
        assert b"<img src=x" not in content
