"""What cannot be taken back: deleting and emptying topics (one or several), adding partitions.

Deleting and emptying come in two steps, both by POST: what would go, then the words typed to
confirm it. For one topic those are its name, for several what is done with how many.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from dashboard.cluster import KafkaFailure
from dashboard.permissions import Permission, requires
from dashboard.refusals import Refusal, refusal_of
from dashboard.selectors.topic_detail import groups_of, look_up
from dashboard.services import topics as service
from dashboard.services.audit import Actor, actor_of
from dashboard.services.topics import Outcome
from dashboard.snapshots import ClusterSnapshot, TopicState, look_now
from dashboard.views.topics.frame import frame_of

MOST_AT_ONCE = 500


class Kind(NamedTuple):
    verb: str
    past: str
    warning: str
    do: Callable[..., dict[str, Outcome]]


DELETE = Kind(
    "delete",
    "deleted",
    "Topic, records, settings and what groups have committed there are gone for good.",
    service.delete,
)
EMPTY = Kind(
    "empty",
    "emptied",
    "Every record that is there now is gone for good. Topic, settings and partitions stay; offsets"
    " go on from where they are. A topic that is only compacted refuses.",
    service.empty,
)


class Doomed(NamedTuple):
    """One chosen topic, and what hangs on it."""

    name: str
    topic: TopicState | None
    """None: nothing is known of it, or there is no such topic."""
    groups: list[str]


@require_safe
@requires(Permission.CHANGE_TOPICS)
def danger(request: HttpRequest, name: str) -> HttpResponse:
    frame = frame_of(request, name, "topic_danger")
    return render(request, "dashboard/topics/danger.html", frame.context)


@require_http_methods(["GET", "HEAD", "POST"])
@requires(Permission.CHANGE_TOPICS)
def delete(request: HttpRequest) -> HttpResponse:
    return _confirmed(request, DELETE)


@require_http_methods(["GET", "HEAD", "POST"])
@requires(Permission.CHANGE_TOPICS)
def empty(request: HttpRequest) -> HttpResponse:
    return _confirmed(request, EMPTY)


def _confirmed(request: HttpRequest, kind: Kind) -> HttpResponse:
    data = request.POST if request.method == "POST" else request.GET
    names = _names(data)
    if not names:
        messages.error(request, "No topic was chosen.")
        return redirect("topics")
    words = names[0] if len(names) == 1 else f"{kind.verb} {len(names)} topics"
    typed = request.POST.get("confirm")
    context: dict[str, Any] = {"kind": kind, "names": names, "words": words, "typed": typed}
    if typed is not None and typed.strip() == words:
        outcomes = kind.do(actor=actor_of(request), names=names)
        refused = {name: outcome for name, outcome in outcomes.items() if outcome is not None}
        _tell(request, kind, [name for name in names if name not in refused])
        if not refused:
            is_there = kind is EMPTY and len(names) == 1
            return redirect("topic", names[0]) if is_there else redirect("topics")
        context["refusals"] = [(name, refusal_of(why)) for name, why in refused.items()]
        return render(request, "dashboard/topics/refused.html", context, status=422)
    snapshot = look_now()
    context["snapshot"] = snapshot
    context["doomed"] = doomed = [_doomed(snapshot, name) for name in names]
    if len(doomed) == 1 and doomed[0].topic is None:
        context["doomed"] = [doomed[0]._replace(topic=look_up(names[0]).value)]
    status = 200 if typed is None else 422
    return render(request, "dashboard/topics/confirm.html", context, status=status)


def _names(data: QueryDict) -> list[str]:
    return list(dict.fromkeys(name for name in data.getlist("topic") if name))[:MOST_AT_ONCE]


def _doomed(snapshot: ClusterSnapshot | None, name: str) -> Doomed:
    groups = [each.group.group for each in groups_of(snapshot, name)] if snapshot else []
    return Doomed(name, snapshot.topics.get(name) if snapshot else None, groups)


def _tell(request: HttpRequest, kind: Kind, names: Sequence[str]) -> None:
    if len(names) == 1:
        messages.success(request, f"Topic {names[0]} was {kind.past}.")
    elif names:
        messages.success(request, f"{len(names)} topics were {kind.past}.")


@require_http_methods(["GET", "HEAD", "POST"])
@requires(Permission.CHANGE_TOPICS)
def partitions(request: HttpRequest, name: str) -> HttpResponse:
    """The new total; ``action=check`` asks the cluster and changes nothing."""
    frame = frame_of(request, name, "topic_danger")
    typed = request.POST.get("total", "").strip()
    context = {**frame.context, "typed": typed}
    if request.method != "POST":
        return render(request, "dashboard/topics/partitions_add.html", context)
    is_check = request.POST.get("action") == "check"
    refusal = _add(actor_of(request), name, typed, is_check=is_check)
    if refusal is None and not is_check:
        messages.success(request, f"{name} has {typed} partitions now.")
        return redirect("topic", name)
    context |= {"refusal": refusal, "is_accepted": refusal is None}
    status = 200 if refusal is None else 422
    return render(request, "dashboard/topics/partitions_add.html", context, status=status)


def _add(actor: Actor, name: str, typed: str, *, is_check: bool) -> Refusal | None:
    if not (typed.isascii() and typed.isdigit() and len(typed) <= 6):
        return Refusal("total", "That is not a number of partitions.", "")
    outcome: KafkaFailure | None = service.add_partitions(
        actor=actor, name=name, total=int(typed), validate_only=is_check
    )
    return None if outcome is None else refusal_of(outcome)
