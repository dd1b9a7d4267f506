"""A topic's settings: all of them with where each comes from, and one to change."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from dashboard import topic_settings
from dashboard.cluster import ConfigSource, ConfigView
from dashboard.permissions import Permission, requires
from dashboard.refusals import refusal_of
from dashboard.selectors.topic_detail import settings_of
from dashboard.services import topics as service
from dashboard.services.audit import actor_of
from dashboard.topic_settings import Words
from dashboard.views.parts import page_or_part
from dashboard.views.topics.frame import frame_of

SOURCES = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "this topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "one broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers",
    ConfigSource.STATIC_BROKER_CONFIG: "broker's file",
    ConfigSource.DEFAULT_CONFIG: "default",
    ConfigSource.DYNAMIC_GROUP_CONFIG: "group",
}


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: str


class Row(NamedTuple):
    """One setting: what holds, where it comes from, and what would hold without that."""

    view: ConfigView
    words: Words
    in_words: str
    source: str
    is_own: bool
    synonyms: list[Synonym]
    note: str


def row_of(view: ConfigView, *, is_odradek: bool) -> Row:
    words = topic_settings.words_of(view.name)
    return Row(
        view,
        words,
        topic_settings.in_words(view.name, view.value),
        SOURCES.get(view.source, "unknown"),
        view.source is ConfigSource.DYNAMIC_TOPIC_CONFIG,
        [
            Synonym(name, value, SOURCES.get(source, "unknown"))
            for name, value, source in view.synonyms
        ],
        words.note if is_odradek else "",
    )


@require_safe
def settings(request: HttpRequest, name: str) -> HttpResponse:
    """Grouped; only those that hold the search, or were set on this topic, if asked for."""
    frame = frame_of(request, name, "topic_settings")
    answer = settings_of(name)
    search = request.GET.get("q", "").strip()[:100]
    only_own = request.GET.get("own") == "1"
    groups: dict[str, list[Row]] = {group: [] for group in topic_settings.GROUPS}
    if answer.value is not None:
        for view in answer.value.views:
            row = row_of(view, is_odradek=answer.value.is_odradek)
            if _fits(row, search) and (row.is_own or not only_own):
                groups.setdefault(topic_settings.group_of(view.name), []).append(row)
    context: dict[str, Any] = {
        **frame.context,
        "answer": answer,
        "search": search,
        "only_own": only_own,
        "groups": [(group, rows) for group, rows in groups.items() if rows],
    }
    return page_or_part(request, "topics/settings.html", "topics/settings_part.html", context)


def _fits(row: Row, search: str) -> bool:
    text = f"{row.view.name} {row.words.doc} {row.view.value}".casefold()
    return all(word in text for word in search.casefold().split())


@require_http_methods(["GET", "HEAD", "POST"])
@requires(Permission.CHANGE_TOPICS)
def setting(request: HttpRequest, name: str, key: str) -> HttpResponse:
    """One setting: ``save`` sets it, ``check`` asks the broker alone, ``reset`` takes it away."""
    frame = frame_of(request, name, "topic_settings")
    answer = settings_of(name)
    view = (
        next((view for view in answer.value.views if view.name == key), None)
        if (answer.value is not None)
        else None
    )
    if view is None and answer.value is not None:
        raise Http404(f"The topic {name} has no setting {key}.")
    context = {**frame.context, "answer": answer, "key": key}
    if view is not None and answer.value is not None:
        context["row"] = row_of(view, is_odradek=answer.value.is_odradek)
        context["typed"] = view.value or ""
    if request.method == "POST":
        done = _change(request, name, key, context)
        if done is not None:
            return done
    status = 422 if "refusal" in context else 200
    return render(request, "dashboard/topics/setting.html", context, status=status)


def _change(
    request: HttpRequest, name: str, key: str, context: dict[str, Any]
) -> HttpResponse | None:
    """The way back when it was done; None with words in ``context`` otherwise."""
    action = request.POST.get("action")
    actor = actor_of(request)
    if action == "reset":
        outcome = service.reset_setting(actor=actor, name=name, key=key)
    else:
        context["typed"] = typed = request.POST.get("value", "")
        value = topic_settings.read(key, typed)
        context["meant"] = (value, topic_settings.in_words(key, value))
        outcome = service.set_setting(
            actor=actor, name=name, key=key, value=value, validate_only=action == "check"
        )
    if outcome is not None:
        context["refusal"] = refusal_of(outcome, [key])
        return None
    if action == "check":
        context["is_accepted"] = True
        return None
    what = "was reset" if action == "reset" else "was set"
    messages.success(request, f"{key} {what}.")
    return redirect("topic_settings", name)
