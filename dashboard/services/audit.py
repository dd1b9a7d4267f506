"""Writes down what was changed here. Every service that changes something goes through ``change``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from django.utils import timezone

from dashboard.addresses import client_address
from dashboard.models import AuditEntry, User


@dataclass(frozen=True, slots=True)
class Actor:
    """Who does something, and by which way."""

    name: str
    source: str
    user: User | None = None
    address: str = ""


SYSTEM = Actor("odradek", AuditEntry.Source.SYSTEM)


@dataclass(slots=True)
class Change:
    """Filled in while the change is made; ``failure`` when some of it was refused."""

    before: Any = None
    after: Any = None
    failure: str = ""


def actor_of(request: HttpRequest, source: str = AuditEntry.Source.PAGE) -> Actor:
    user = request.user if isinstance(request.user, User) else None
    return Actor(user.username if user else "nobody", source, user, client_address(request))


def record(
    actor: Actor,
    action: str,
    target: str,
    *,
    before: Any = None,
    after: Any = None,
    failure: str = "",
) -> AuditEntry:
    return AuditEntry.objects.create(
        at=timezone.now(),
        actor=actor.user,
        actor_name=actor.name,
        address=actor.address,
        source=actor.source,
        action=action,
        target=target[:512],
        before=before,
        after=after,
        failure=failure[:2000],
    )


@contextlib.contextmanager
def change(actor: Actor, action: str, target: str) -> Iterator[Change]:
    """Record what happens inside, also when it raises."""
    made = Change()
    try:
        yield made
    except Exception as error:
        made.failure = str(error) or type(error).__name__
        raise
    finally:
        record(actor, action, target, before=made.before, after=made.after, failure=made.failure)
