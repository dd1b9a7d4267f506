"""A person's own searches by name. What they may hold is what their page's address may hold."""

from __future__ import annotations

from typing import Any

from django.db.models import Q
from django.http import QueryDict

from dashboard.forms.messages import MessageForm
from dashboard.models import SavedFilter, User
from dashboard.payloads import MAX_FILTER_LENGTH, MAX_TOPIC_LENGTH, MAX_TOPICS

Place = SavedFilter.Place
MAX_FILTERS = 100
"""Of one person."""
MAX_QUERY = 8000
KEPT = {
    Place.MESSAGES: frozenset(MessageForm.base_fields) - {"cursor", "way"},
    Place.TAIL: frozenset({"topic", "filter", "last", "rows"}),
}
"""Parameters that belong to a search; where a page of it stands does not."""


class FilterRefused(Exception):
    """The text is for the person."""


def save(*, owner: User, place: str, topic: str, name: str, query: str) -> SavedFilter:
    """Under a name that is there already it takes that one's place. Raises FilterRefused."""
    name = " ".join(name.split())
    if not 0 < len(name) <= 80 or not name.isprintable():
        raise FilterRefused("A filter needs a name of at most 80 characters.")
    kept = _checked(Place(place), query)
    same: dict[str, Any] = {"owner": owner, "place": place, "topic": topic, "name": name}
    is_new = not SavedFilter.objects.filter(**same).exists()
    if is_new and SavedFilter.objects.filter(owner=owner).count() >= MAX_FILTERS:
        raise FilterRefused(f"You have {MAX_FILTERS} filters already: delete one first.")
    found, _ = SavedFilter.objects.update_or_create(**same, defaults={"query": kept})
    return found


def delete(*, owner: User, pk: int) -> None:
    """One's own; of another's nothing is said."""
    SavedFilter.objects.filter(owner=owner, pk=pk).delete()


def offered(owner: User, place: str, topic: str = "") -> list[SavedFilter]:
    """Those of this place, and of messages those of this topic and of every topic; by name."""
    found = SavedFilter.objects.filter(Q(topic=topic) | Q(topic=""), owner=owner, place=place)
    return list(found[:MAX_FILTERS])


def _checked(place: SavedFilter.Place, query: str) -> str:
    """The parameters that are kept, in the order in which they came."""
    given = QueryDict(query[: MAX_QUERY * 2])
    kept = QueryDict(mutable=True)
    for name in given:
        if name in KEPT[place]:
            kept.setlist(name, [value for value in given.getlist(name) if value])
    is_good = _is_good_tail(kept) if place == Place.TAIL else MessageForm(kept).is_valid()
    text = kept.urlencode()
    if not text:
        raise FilterRefused("There is nothing to save yet: search for something first.")
    if not is_good or len(text) > MAX_QUERY:
        raise FilterRefused("This search makes no sense, so it was not saved.")
    return text


def _is_good_tail(query: QueryDict) -> bool:
    topics = query.getlist("topic")
    return (
        len(topics) <= MAX_TOPICS
        and all(len(topic) <= MAX_TOPIC_LENGTH for topic in topics)
        and len(query.get("filter", "")) <= MAX_FILTER_LENGTH
        and all(query.get(name, "0").isdecimal() for name in ("last", "rows"))
    )
