"""Where a name leads: pages, topics, groups and brokers, for the box that goes anywhere.

One pass over the names of the newest snapshot; of each kind a few are told.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from django.urls import reverse

from dashboard.permissions import Permission, may
from dashboard.snapshots import ClusterSnapshot

PER_KIND = 8
LONGEST = 300
"""Of what is typed: no topic's name is longer; a longer group's is found by its beginning."""


class Place(NamedTuple):
    kind: str
    name: str
    url: str
    tail_url: str = ""
    """Of a topic whose records this person may read: its live tail."""


def places(
    user: Any,
    navigation: Sequence[dict[str, Any]],
    snapshot: ClusterSnapshot | None,
    text: str,
) -> list[Place]:
    """What holds every word of `text` in its name; names that begin with it come first. Without
    any text: the favourites, and all pages."""
    text = text.strip().casefold()[:LONGEST]
    pages = {str(item["label"]): str(item["url"]) for item in navigation}
    found = [Place("Page", name, pages[name]) for name in _best(pages, text)]
    if not text:
        favourites = reversed(getattr(user, "favourite_topics", ()))
        return [Place("Favourite", one, reverse("topic", args=[one])) for one in favourites] + found
    if snapshot is None:
        return found
    found += _topics(user, snapshot, text)
    group_page = reverse("group")
    for name in _best(snapshot.groups, text):
        found.append(Place("Group", name, f"{group_page}?id={quote(name, safe='')}"))
    brokers = {
        f"Broker {one.broker_id} {one.host}:{one.port}": reverse("broker", args=[one.broker_id])
        for one in snapshot.brokers.values()
    }
    return found + [Place("Broker", name, brokers[name]) for name in _best(brokers, text)]


def _topics(user: Any, snapshot: ClusterSnapshot, text: str) -> Iterator[Place]:
    tail = reverse("tail")
    for name in _best(snapshot.topics, text):
        is_readable = may(user, Permission.READ_RECORDS, name)
        yield Place(
            "Topic",
            name,
            reverse("topic", args=[name]),
            f"{tail}?topic={quote(name, safe='')}" if is_readable else "",
        )


def _best(names: Iterable[str], text: str) -> list[str]:
    words = text.split()
    fitting = (name for name in names if all(word in name.casefold() for word in words))
    if not text:
        return list(fitting)
    return heapq.nsmallest(
        PER_KIND,
        fitting,
        key=lambda name: (not name.casefold().startswith(text), len(name), name),
    )
