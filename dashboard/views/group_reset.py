"""Moving a group's offsets: say where to, see what it would do, do it."""

from __future__ import annotations

from typing import Any, Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from broker.clock import SystemClock
from dashboard import clusters
from dashboard.cluster import KafkaFailure
from dashboard.permissions import Permission, requires
from dashboard.selectors.group_reset import plan_reset, planned
from dashboard.services import audit
from dashboard.services import groups as service
from dashboard.snapshots import look_now
from dashboard.views.group_forms import ResetForm
from dashboard.views.groups import group_name, group_url, tried

MAX_MOVES_SHOWN: Final = 500


@requires(Permission.CHANGE_GROUPS)
def group_reset(request: HttpRequest) -> HttpResponse:
    """GET asks and previews, its address says what; POST carries out the preview it was sent."""
    name = group_name(request)
    if request.method == "POST":
        return _carry_out(request, name)
    is_asked = "to" in request.GET
    form = ResetForm(
        request.GET if is_asked else {**_defaults(request)}, initial=_defaults(request)
    )
    context: dict[str, Any] = {"name": name, "form": form, "is_asked": is_asked}
    snapshot = look_now()
    known = snapshot.groups.get(name) if snapshot is not None else None
    context["topics"] = known.topics if known is not None else ()
    if is_asked and form.is_valid():
        try:
            plan = plan_reset(clusters.gateway(), form.request(name, SystemClock().wall_ms()))
        except KafkaFailure as failure:
            context["failure"] = service.words_of(failure)
        else:
            context["plan"] = plan
            context["moves"] = plan.moves[:MAX_MOVES_SHOWN]
            context["more_moves"] = max(0, len(plan.moves) - MAX_MOVES_SHOWN)
    return render(request, "dashboard/group_reset.html", context)


def _carry_out(request: HttpRequest, name: str) -> HttpResponse:
    back = f"{request.path}?{request.GET.urlencode()}"
    try:
        group, moves = planned(request.POST.get("plan", ""))
        if group != name:
            raise ValueError("The preview is of another group: make it again.")
    except ValueError as error:
        messages.error(request, str(error))
        return redirect(back)
    is_done = tried(
        request,
        lambda: service.reset_offsets(
            gateway=clusters.gateway(), actor=audit.actor_of(request), group=name, moves=moves
        ),
    )
    if not is_done:
        return redirect(back)
    noun = "partition" if len(moves) == 1 else "partitions"
    messages.success(request, f"The offsets of {len(moves)} {noun} are moved.")
    return redirect(group_url(name))


def _defaults(request: HttpRequest) -> dict[str, str]:
    topic = request.GET.get("topic", "")
    return {"scope": "topic" if topic else "all", "to": "earliest", "topic": topic}
