"""Saving a search under a name, and forgetting it; the pages themselves list what is saved."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import NoReverseMatch, reverse
from django.views.decorators.http import require_POST

from dashboard.models import SavedFilter
from dashboard.payloads import MAX_TOPIC_LENGTH
from dashboard.permissions import Permission, check, requires
from dashboard.services import saved_filters
from dashboard.views.messages.browsing import person


@require_POST
@requires(Permission.READ_RECORDS)
def save(request: HttpRequest) -> HttpResponse:
    """``place``, ``topic`` (the page's), ``query``, ``name``; ``everywhere``: at every topic."""
    place, topic, query = (request.POST.get(name, "") for name in ("place", "topic", "query"))
    is_of_topic = place == SavedFilter.Place.MESSAGES
    if (
        place not in SavedFilter.Place.values
        or bool(topic) != is_of_topic
        or len(topic) > MAX_TOPIC_LENGTH
    ):
        raise Http404("There is no such page.")
    page = _page(place, topic)
    if topic:
        check(request.user, Permission.READ_RECORDS, topic)
    try:
        saved = saved_filters.save(
            owner=person(request),
            place=place,
            topic="" if request.POST.get("everywhere") else topic,
            name=request.POST.get("name", ""),
            query=query,
        )
    except saved_filters.FilterRefused as refused:
        messages.error(request, str(refused))
    else:
        messages.success(request, f"Saved as {saved.name}.")
        query = saved.query
    return redirect(f"{page}?{query}")


@require_POST
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    """Back to the page that it was deleted from."""
    page = _page(request.POST.get("place", ""), request.POST.get("topic", ""))
    saved_filters.delete(owner=person(request), pk=pk)
    return redirect(f"{page}?{request.POST.get('query', '')}")


def _page(place: str, topic: str) -> str:
    if place != SavedFilter.Place.MESSAGES or not topic:
        return reverse("tail")
    try:
        return reverse("topic_messages", args=[topic])
    except NoReverseMatch:
        raise Http404("There is no such topic.") from None
