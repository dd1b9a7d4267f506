"""The gateway against real brokers, ours and Apache Kafka; and the API asked as each role."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from dashboard.gateway import Gateway
from dashboard.models import Role, User
from dashboard.services import api_tokens, audit
from tests.support.fixtures import *  # noqa: F403
from tests.support.fixtures import Broker

Ask = Callable[..., tuple[int, Any]]


@pytest.fixture
def ask(db: None) -> Ask:
    """`ask("viewer", "GET", "alert-rules")`: status and document. Users are called by their roles."""
    tokens = {}
    for role in Role.values:
        owner = User.objects.create_user(role, role=role)
        tokens[role] = api_tokens.make(
            actor=audit.SYSTEM, owner=owner, name="t", role=role, expires_at=None
        )[1]

    def ask(role: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        answer = Client().generic(
            method,
            f"/api/v1/{path}",
            b"" if body is None else json.dumps(body),
            content_type="application/json",
            headers={"Authorization": f"Bearer {tokens[role]}"},
        )
        return answer.status_code, answer.json()

    return ask


@pytest.fixture
def gateway(broker: Broker) -> Gateway:
    gateway = Gateway(broker.bootstrap)
    gateway.check()
    return gateway


@pytest.fixture
def library_only(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Gateway:
    """As if the listeners were none that our own plain-socket requests can speak to."""
    gateway = Gateway(broker.bootstrap)
    monkeypatch.setattr(gateway._link, "serves", lambda request: False)
    return gateway
