"""People: who may be added, changed and removed, and what that does to their sessions."""

from collections.abc import Callable

import pytest
from django.test import Client

from dashboard.models import AuditEntry, Role, User
from dashboard.services import audit, users

pytestmark = pytest.mark.django_db
ACTOR = audit.Actor("ada", AuditEntry.Source.PAGE)


@pytest.fixture
def ada() -> User:
    return User.objects.create_user("ada", password="correct-horse-9", role=Role.ADMIN)


@pytest.fixture
def vera() -> User:
    return User.objects.create_user("vera", password="correct-horse-9", role=Role.VIEWER)


def session_of(user: User) -> Client:
    client = Client()
    client.force_login(user, "django.contrib.auth.backends.ModelBackend")
    assert client.get("/account/password/").status_code == 200
    return client


def test_a_new_user_gets_a_made_password_that_has_to_be_changed() -> None:
    user, password = users.add(
        actor=ACTOR, username="nora", role=Role.OPERATOR, readable_topics="orders-*  audit,orders-*"
    )

    assert user.check_password(password)
    assert user.must_change_password
    assert user.readable_topics == "orders-*, audit"
    entry = AuditEntry.objects.get(action="user.add")
    assert (entry.actor_name, entry.target, entry.failure) == ("ada", "nora", "")
    assert entry.after["role"] == "operator"
    assert password not in str(vars(entry))


def test_a_name_is_given_once(ada: User) -> None:
    with pytest.raises(users.UserRefused, match="already exists"):
        users.add(actor=ACTOR, username="ada", role=Role.VIEWER)

    assert AuditEntry.objects.get(action="user.add").failure != ""


@pytest.mark.parametrize(
    "remove",
    [
        lambda user: users.delete(actor=ACTOR, user=user),
        lambda user: users.change(actor=ACTOR, user=user, role=Role.OPERATOR),
        lambda user: users.change(actor=ACTOR, user=user, is_active=False),
    ],
    ids=["deleted", "demoted", "shut off"],
)
def test_the_last_admin_stays(ada: User, vera: User, remove: Callable[[User], object]) -> None:
    resting = User.objects.create_user("rita", role=Role.ADMIN, is_active=False)
    with pytest.raises(users.UserRefused, match="last admin"):
        remove(ada)
    ada.refresh_from_db()
    assert (ada.role, ada.is_active) == (Role.ADMIN, True)
    assert "last admin" in AuditEntry.objects.get().failure

    users.change(actor=ACTOR, user=resting, is_active=True)
    remove(ada)

    assert not User.objects.filter(username="ada", role=Role.ADMIN, is_active=True).exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda user: users.change(actor=ACTOR, user=user, role=Role.OPERATOR),
        lambda user: users.change(actor=ACTOR, user=user, is_active=False),
        lambda user: users.reset_password(actor=ACTOR, user=user),
        lambda user: users.delete(actor=ACTOR, user=user),
    ],
    ids=["role", "activity", "password", "deleted"],
)
def test_sessions_end_when_somebody_changes(
    ada: User, vera: User, change: Callable[[User], object]
) -> None:
    of_vera, of_ada = session_of(vera), session_of(ada)

    change(vera)

    assert of_vera.get("/account/password/").status_code == 302
    assert of_ada.get("/account/password/").status_code == 200


def test_an_old_session_stays_ended_when_the_role_comes_back(ada: User, vera: User) -> None:
    of_vera = session_of(vera)

    users.change(actor=ACTOR, user=vera, role=Role.OPERATOR)
    users.change(actor=ACTOR, user=vera, role=Role.VIEWER)

    assert of_vera.get("/account/password/").status_code == 302


def test_other_topics_do_not_end_a_session(ada: User, vera: User) -> None:
    of_vera = session_of(vera)

    users.change(actor=ACTOR, user=vera, readable_topics="orders-*")

    assert of_vera.get("/account/password/").status_code == 200
    entry = AuditEntry.objects.get(action="user.change")
    assert (entry.before, entry.after) == (
        {"readable_topics": "*"},
        {"readable_topics": "orders-*"},
    )


def test_the_own_new_password_keeps_this_session_and_ends_the_others(vera: User) -> None:
    here, there = session_of(vera), session_of(vera)

    here.post(
        "/account/password/",
        {
            "old_password": "correct-horse-9",
            "new_password1": "battery-staple-8",
            "new_password2": "battery-staple-8",
        },
    )

    assert here.get("/account/password/").status_code == 200
    assert there.get("/account/password/").status_code == 302
