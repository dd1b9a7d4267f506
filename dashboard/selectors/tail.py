"""Topics that a person may watch, for the live tail's chooser."""

from __future__ import annotations

from dashboard.models import User
from dashboard.permissions import Permission, may
from dashboard.snapshots import ClusterSnapshot, TopicState

SUGGESTIONS = 20


def watchable_topics(
    snapshot: ClusterSnapshot, user: User, search: str, chosen: frozenset[str]
) -> list[TopicState]:
    """Those whose name holds `search`, the busiest first; internal ones only when asked for."""
    wanted = search.strip().lower()
    found = [
        topic
        for name, topic in snapshot.topics.items()
        if wanted in name.lower()
        and name not in chosen
        and (not topic.is_internal or wanted.startswith("_"))
        and may(user, Permission.READ_RECORDS, name)
    ]
    found.sort(key=lambda topic: (-(topic.records_in_rate or 0.0), topic.name))
    return found[:SUGGESTIONS]
