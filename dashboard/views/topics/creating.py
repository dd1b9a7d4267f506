"""A new topic: the form, the cluster's opinion of it, and the topic itself."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from dashboard.forms.topics import NewTopicForm
from dashboard.permissions import Permission, requires
from dashboard.selectors.topic_detail import (
    look_up,
    new_topic_defaults,
    own_settings,
    settings_of,
)
from dashboard.selectors.topics import TopicQuery, board_of
from dashboard.services import topics as service
from dashboard.services.audit import actor_of
from dashboard.snapshots import look_now

SUGGESTIONS = 20


@require_http_methods(["GET", "HEAD", "POST"])
@requires(Permission.CHANGE_TOPICS)
def create(request: HttpRequest) -> HttpResponse:
    """``action=check`` asks the cluster whether it would take the topic, and creates nothing."""
    answer = new_topic_defaults()
    context: dict[str, Any] = {"answer": answer, "copied": request.GET.get("copy", "").strip()}
    if answer.value is None:
        return render(request, "dashboard/topics/create.html", context)
    context["form"] = form = NewTopicForm(answer.value)
    if request.method != "POST":
        if context["copied"]:
            context["copy_problem"] = _copy(form, context["copied"])
        return render(request, "dashboard/topics/create.html", context)
    form.take(request.POST.dict())
    is_check = request.POST.get("action") == "check"
    if form.is_good and _create(request, form, is_check=is_check) and not is_check:
        messages.success(request, f"Topic {form.name} was created.")
        return redirect("topic", form.name)
    context["is_accepted"] = form.is_good
    status = 200 if form.is_good else 422
    return render(request, "dashboard/topics/create.html", context, status=status)


def _create(request: HttpRequest, form: NewTopicForm, *, is_check: bool) -> bool:
    outcome = service.create(
        actor=actor_of(request),
        name=form.name,
        partitions=form.partition_count,
        replication_factor=form.replica_count,
        configs=form.configs,
        validate_only=is_check,
    )
    if outcome is not None:
        form.refuse(outcome)
    return outcome is None


def _copy(form: NewTopicForm, name: str) -> str:
    """Fill the form from another topic; why that was not possible, or nothing."""
    topic, settings = look_up(name), settings_of(name)
    if topic.value is None or settings.value is None:
        failure = topic.failure or settings.failure
        return failure.message if failure else "The cluster has not answered in time: try again"
    form.copy_from(
        len(topic.value.partitions),
        topic.value.replication_factor,
        own_settings(settings.value.views),
    )
    return ""


@require_safe
def suggest(request: HttpRequest) -> HttpResponse:
    """Names for a field that takes one, as options of a datalist."""
    snapshot = look_now()
    query = TopicQuery(search=request.GET.get("copy", "").strip()[:249])
    rows = board_of(snapshot).matching(query)[0][:SUGGESTIONS] if snapshot else []
    return render(request, "dashboard/topics/suggestions.html", {"rows": rows})
