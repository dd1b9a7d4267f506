"""Retention: what each topic's policy says in words, what would go now, what went; compaction."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from dashboard.jobs import COMPACTION, RETENTION
from dashboard.models import JobRun
from dashboard.permissions import Permission, requires
from dashboard.selectors import retention as selector
from dashboard.selectors.charts import chosen_range
from dashboard.selectors.topic_detail import look_up
from dashboard.selectors.topics import TopicQuery
from dashboard.services import audit, jobs
from dashboard.snapshots import look_now


@require_safe
@requires(Permission.SEE)
def listing(request: HttpRequest) -> HttpResponse:
    snapshot = look_now()
    query = TopicQuery.of(request.GET, shows_internal=request.GET.get("internal") == "1")
    context = {
        "snapshot": snapshot,
        "query": query,
        "found": selector.page_of(snapshot, query) if snapshot else None,
        "state": selector.state(snapshot),
        "runs": selector.last_runs(),
    }
    return render(request, "dashboard/retention/list.html", context)


@require_safe
@requires(Permission.SEE)
def of_topic(request: HttpRequest, name: str) -> HttpResponse:
    snapshot = look_now()
    topic = snapshot.topics.get(name) if snapshot is not None else None
    if topic is None:
        topic = look_up(name).value  # younger than the snapshot
    if topic is None or snapshot is None:
        raise Http404("There is no such topic, or it is not known yet.")
    context = selector.topic_context(snapshot, topic, chosen_range(request))
    return render(request, "dashboard/retention/topic.html", context)


@require_POST
@requires(Permission.RUN_JOBS)
def run(request: HttpRequest) -> HttpResponse:
    """Of the topic that is named, else of all; compaction where ``job`` says so."""
    job = COMPACTION if request.POST.get("job") == COMPACTION else RETENTION
    name = request.POST.get("topic", "")[:249]
    actor = audit.actor_of(request)
    try:
        with audit.change(actor, "job.run", f"{job} {name}".strip()) as change:
            made = jobs.enqueue(
                job=job,
                target=name,
                parameters={"topics": [name]} if name else {},
                trigger=JobRun.Trigger.PERSON,
                actor=actor,
            )
            change.after = {"run": made.pk}
    except jobs.AlreadyQueued:
        messages.warning(request, "It is queued or running already.")
        return redirect("retention")
    return redirect("job_run", made.pk)
