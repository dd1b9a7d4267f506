"""Topics that a person keeps at hand. Nothing of the cluster changes, so nothing is audited."""

from __future__ import annotations

from dashboard.models import User

MOST = 100
"""More than anybody looks through; the oldest make room."""


def set_favourite(*, user: User, topic: str, is_favourite: bool) -> None:
    others = [name for name in user.favourite_topics if name != topic]
    user.favourite_topics = ([*others, topic] if is_favourite else others)[-MOST:]
    user.save(update_fields=["favourite_topics"])
