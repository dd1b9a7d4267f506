"""What the pages of one topic share: its name, its tabs, and that it exists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from django.http import Http404, HttpRequest
from django.urls import NoReverseMatch, reverse

from dashboard.cluster import KafkaFailure
from dashboard.permissions import Permission, may
from dashboard.selectors.topic_detail import look_up
from dashboard.snapshots import ClusterSnapshot, TopicState, look_now


class Tab(NamedTuple):
    url_name: str
    label: str
    permission: Permission


TABS = (
    Tab("topic", "Partitions", Permission.SEE),
    Tab("topic_messages", "Messages", Permission.READ_RECORDS),
    Tab("topic_produce", "Produce", Permission.PRODUCE),
    Tab("topic_groups", "Groups", Permission.SEE),
    Tab("topic_settings", "Settings", Permission.SEE),
    Tab("topic_snippets", "Connect", Permission.SEE),
    Tab("topic_danger", "Danger zone", Permission.CHANGE_TOPICS),
)


@dataclass(frozen=True, slots=True)
class Frame:
    """``topic`` is None when neither the snapshot nor the cluster told of it yet."""

    name: str
    topic: TopicState | None
    snapshot: ClusterSnapshot | None
    failure: KafkaFailure | None
    context: dict[str, Any]


def frame_of(request: HttpRequest, name: str, tab: str) -> Frame:
    """Raises Http404 when the cluster says that there is no such topic."""
    snapshot = look_now()
    topic = snapshot.topics.get(name) if snapshot is not None else None
    failure = None
    if topic is None:
        answer = look_up(name)
        topic, failure = answer.value, answer.failure
        if failure is not None and not failure.is_transport:
            raise Http404(f"The cluster has no topic {name}: {failure.message}.")
    context = {
        "name": name,
        "topic": topic,
        "snapshot": snapshot,
        "failure": failure,
        "tabs": _tabs(request.user, name, tab),
        "is_favourite": name in getattr(request.user, "favourite_topics", ()),
        "may_tail": may(request.user, Permission.READ_RECORDS, name),
    }
    return Frame(name, topic, snapshot, failure, context)


def _tabs(user: Any, name: str, current: str) -> list[dict[str, Any]]:
    tabs = []
    for tab in TABS:
        topic = name if tab.permission is Permission.READ_RECORDS else None
        if not may(user, tab.permission, topic):
            continue
        try:
            url = reverse(tab.url_name, args=[name])
        except NoReverseMatch:
            continue
        tabs.append({"url": url, "label": tab.label, "is_here": tab.url_name == current})
    return tabs
