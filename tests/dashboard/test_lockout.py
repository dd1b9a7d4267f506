"""Who guesses passwords is shut out; nobody else is."""

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from axes.models import AccessAttempt
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from dashboard import lockout
from dashboard.models import AuditEntry, User

pytestmark = pytest.mark.django_db
PASSWORD = "correct-horse-9"
SignIn = Callable[..., HttpResponse]


@pytest.fixture(autouse=True)
def people() -> None:
    for name in ("ada", "vera"):
        User.objects.create_user(name, password=PASSWORD)


@pytest.fixture
def sign_in() -> SignIn:
    def try_it(
        name: str = "ada", password: str = "wrong", address: str = "10.0.0.9", **headers: Any
    ) -> Any:
        return Client().post(
            "/login/",
            {"username": name, "password": password},
            REMOTE_ADDR=address,
            headers=headers,
        )

    return try_it


def test_ten_wrong_passwords_shut_the_name_out_from_that_address_alone(sign_in: SignIn) -> None:
    for _ in range(9):
        assert sign_in().status_code == 200
    tenth = sign_in()

    assert tenth.status_code == 429
    assert sign_in(password=PASSWORD).status_code == 429
    assert sign_in(password=PASSWORD, address="10.0.0.10").status_code == 302
    assert sign_in("vera", PASSWORD).status_code == 302


def test_the_page_says_until_when_and_trying_does_not_move_it(sign_in: SignIn) -> None:
    for _ in range(10):
        sign_in()
    (lock,) = lockout.locks()
    page = sign_in()

    left = lock.until - timezone.now()
    assert dt.timedelta(minutes=14) < left <= dt.timedelta(minutes=15)
    assert lock.until.strftime("%Y-%m-%d %H:%M:%S").encode() in page.content
    assert 14 * 60 < int(page["Retry-After"]) <= 15 * 60 + 1
    assert lockout.locks() == [lock]


def test_it_ends_by_itself(sign_in: SignIn) -> None:
    for _ in range(10):
        sign_in()
    past = timezone.now() - dt.timedelta(minutes=15, seconds=1)
    AccessAttempt.objects.update(attempt_time=past)

    assert lockout.locks() == []
    assert sign_in(password=PASSWORD).status_code == 302


def test_one_password_tried_on_many_names_shuts_the_address_out(sign_in: SignIn) -> None:
    for number in range(100):
        sign_in(f"name{number}")

    refused = sign_in("vera", PASSWORD)
    assert refused.status_code == 429
    assert b"from this address have failed" in refused.content
    assert [(lock.username, lock.failures) for lock in lockout.locks()] == [(None, 100)]
    assert sign_in("vera", PASSWORD, "10.0.0.10").status_code == 302


def test_a_forged_header_neither_evades_nor_shuts_others_out(
    sign_in: SignIn, settings: Settings
) -> None:
    """The proxy at 10.0.0.2 appends who asked it; the client may have written the rest."""
    settings.ODRADEK_TRUSTED_PROXIES = 1
    proxy = "10.0.0.2"
    for number in range(10):
        forged = f"198.51.100.{number}, 203.0.113.7"
        sign_in(address=proxy, **{"X-Forwarded-For": forged})

    again = sign_in("ada", PASSWORD, proxy, **{"X-Forwarded-For": "8.8.8.8, 203.0.113.7"})
    victim = sign_in("ada", PASSWORD, proxy, **{"X-Forwarded-For": "198.51.100.3"})

    assert again.status_code == 429
    assert victim.status_code == 302


def test_without_a_trusted_proxy_the_header_is_nothing(sign_in: SignIn) -> None:
    for number in range(10):
        sign_in(**{"X-Forwarded-For": f"198.51.100.{number}"})

    assert sign_in(**{"X-Forwarded-For": "198.51.100.77"}).status_code == 429
    assert [lock.address for lock in lockout.locks()] == ["10.0.0.9"]


def test_sign_ins_failures_and_lockouts_are_written_down_but_not_tries_while_shut_out(
    sign_in: SignIn,
) -> None:
    sign_in("vera", PASSWORD)
    for _ in range(14):
        sign_in()

    entries = AuditEntry.objects.values_list("action", "actor_name", "address")
    assert sorted(entries) == [
        ("user.lockout", "ada", "10.0.0.9"),
        *[("user.sign_in", "ada", "10.0.0.9")] * 10,
        ("user.sign_in", "vera", "10.0.0.9"),
    ]
    assert AuditEntry.objects.filter(action="user.sign_in", failure="").count() == 1


def test_an_admin_ends_it(sign_in: SignIn) -> None:
    User.objects.create_user("root", password=PASSWORD, role="admin")
    for _ in range(10):
        sign_in()
    admin = Client()
    admin.force_login(
        User.objects.get(username="root"), "django.contrib.auth.backends.ModelBackend"
    )

    page = admin.get("/users/")
    admin.post("/users/unlock/", {"username": "ada", "address": "10.0.0.9"})

    assert b"10.0.0.9" in page.content
    assert sign_in(password=PASSWORD).status_code == 302
    assert AuditEntry.objects.get(action="user.unlock").target == "ada"
