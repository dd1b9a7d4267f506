"""Pages of where partitions lie: what moves, plans that are shown before they are done, and elections."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from broker.model.ids import TopicPartition
from dashboard import clusters
from dashboard.cluster import KafkaFailure
from dashboard.moves import Move
from dashboard.moves_wire import Outcomes
from dashboard.permissions import Permission, requires
from dashboard.refusals import refusal_of
from dashboard.selectors import moves as selector
from dashboard.selectors.moves import MAX_SHOWN, PlanRefused, Wanted
from dashboard.services import moves as service
from dashboard.services.audit import actor_of
from dashboard.snapshots import ClusterSnapshot, look_now
from dashboard.views.parts import number_of, page_or_part

#: Of brokers and partitions.
_MOST: Final = 999_999_999
_BROKERS: Final = re.compile(r"\d{1,9}(,\d{1,9}){0,99}", re.ASCII)


@require_safe
def moves(request: HttpRequest) -> HttpResponse:
    snapshot = look_now()
    answer = selector.look()
    wrong = selector.not_preferred(snapshot)
    context: dict[str, Any] = {
        "snapshot": snapshot,
        "answer": answer,
        "moving": (answer.value or [])[:MAX_SHOWN],
        "moving_count": len(answer.value or []),
        "not_preferred": wrong[:MAX_SHOWN],
        "not_preferred_count": len(wrong),
        "electable_count": sum(each.is_in_sync for each in wrong),
        "brokers": selector.brokers_of(snapshot) if snapshot is not None else [],
    }
    response = page_or_part(request, "moves.html", "moves_live.html", context)
    response["Cache-Control"] = "no-store"
    return response


@require_http_methods(["GET", "HEAD", "POST"])
@requires(Permission.MOVE_PARTITIONS)
def plan(request: HttpRequest) -> HttpResponse:
    """What it would take, and then the beginning of it."""
    context: dict[str, Any] = {}
    try:
        wanted, words = _wanted(request)
        context["words"] = words
        found = _fresh_plan(wanted) if request.method == "POST" else _shown_plan(wanted)
    except PlanRefused as refused:
        return render(request, "dashboard/moves_plan.html", {**context, "refused": str(refused)})
    except KafkaFailure as failure:
        return render(
            request, "dashboard/moves_plan.html", {**context, "refusal": refusal_of(failure)}
        )
    context |= {
        "moves": found[:MAX_SHOWN],
        "count": len(found),
        "fewer": sum(len(move.after) < len(move.before) for move in found),
        "digest": selector.digest_of(found),
    }
    if request.method == "POST":
        if request.POST.get("digest") == context["digest"] and found:
            return _begin(request, words, found, context)
        context["has_changed"] = True
    return render(request, "dashboard/moves_plan.html", context)


def _begin(
    request: HttpRequest, words: str, found: list[Move], context: dict[str, Any]
) -> HttpResponse:
    try:
        outcomes = service.reassign(
            gateway=clusters.gateway(), actor=actor_of(request), what=words, moves=found
        )
    except KafkaFailure as failure:
        context["refusal"] = refusal_of(failure)
        return render(request, "dashboard/moves_plan.html", context)
    _tell(request, outcomes, "began to move", "could not be moved")
    return redirect("moves")


@require_http_methods(["GET", "HEAD", "POST"])
@requires(Permission.MOVE_PARTITIONS)
def cancel(request: HttpRequest) -> HttpResponse:
    """Of one partition's move, or of all that are under way."""
    key = _named_partition(request)
    if request.method != "POST":
        return render(request, "dashboard/moves_cancel.html", {"key": key})
    gateway = clusters.gateway()
    try:
        keys = [key] if key is not None else list(gateway.moves.under_way())
        if not keys:
            messages.info(request, "Nothing is being moved any more.")
            return redirect("moves")
        outcomes = service.cancel(gateway=gateway, actor=actor_of(request), keys=keys)
    except KafkaFailure as failure:
        messages.error(request, refusal_of(failure).text)
        return redirect("moves")
    _tell(request, outcomes, "stay where they were", "could not be cancelled")
    return redirect("moves")


@require_http_methods(["GET", "HEAD", "POST"])
@requires(Permission.MOVE_PARTITIONS)
def elect(request: HttpRequest) -> HttpResponse:
    """Preferred leaders: of one partition, or of all whose preferred replica is in sync."""
    key = _named_partition(request)
    wrong = selector.not_preferred(look_now())
    keys: Collection[TopicPartition] = [key] if key else [e.key for e in wrong if e.is_in_sync]
    if request.method != "POST":
        context = {"key": key, "count": len(keys)}
        return render(request, "dashboard/leaders_elect.html", context)
    if not keys:
        messages.info(request, "Every partition is led by its first replica already.")
        return redirect("moves")
    try:
        outcomes = service.elect(gateway=clusters.gateway(), actor=actor_of(request), keys=keys)
    except KafkaFailure as failure:
        messages.error(request, refusal_of(failure).text)
    else:
        _tell(request, outcomes, "are led by their first replica", "kept their leader")
    return redirect("moves")


def _tell(request: HttpRequest, outcomes: Outcomes, done: str, refused: str) -> None:
    failures = [failure for failure in outcomes.values() if failure is not None]
    if len(outcomes) > len(failures):
        messages.success(request, f"{_partitions(len(outcomes) - len(failures))}: {done}.")
    first = service.first_failure(outcomes)
    if first is not None:
        key, failure = first
        words = f"{_partitions(len(failures))}: {refused}. {key}: {refusal_of(failure).text}"
        messages.error(request, words)


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count} partitions"


# What is asked for


def _wanted(request: HttpRequest) -> tuple[Wanted, str]:
    """With words for it. Raises PlanRefused, and Http404 where no kind of plan is named."""
    kind = request.GET.get("what", "")
    if kind == "join":
        is_all = bool(request.GET.get("user_topics"))
        whose = "all topics" if is_all else "internal topics"
        return Wanted("join", is_all), f"Raise the replicas of {whose}"
    if kind == "leave":
        broker = _typed(request, "broker")
        return Wanted("leave", broker=broker), f"Move everything away from broker {broker}"
    if kind == "move":
        key = TopicPartition(request.GET.get("topic", "").strip(), _typed(request, "partition"))
        listed = request.GET.get("replicas", "").replace(" ", "")
        if not _BROKERS.fullmatch(listed):
            raise PlanRefused("Replicas are numbers of brokers, with commas between them.")
        replicas = tuple(map(int, listed.split(",")))
        return Wanted("move", key=key, replicas=replicas), f"Move {key} to {listed}"
    raise Http404("The address does not say what is to be moved.")


def _shown_plan(wanted: Wanted) -> list[Move]:
    """By the newest snapshot: a page does not wait for the cluster."""
    snapshot: ClusterSnapshot | None = look_now()
    if snapshot is None:
        raise PlanRefused("The cluster has not been seen yet: look again in a moment.")
    going = selector.look().value or ()
    targets = {each.key: each.after for each in going}
    return selector.plan(
        wanted, selector.topics_of(snapshot), selector.brokers_of(snapshot), targets
    )


def _fresh_plan(wanted: Wanted) -> list[Move]:
    gateway = clusters.gateway()
    targets = {key: state.target for key, state in gateway.moves.under_way().items()}
    return selector.plan(wanted, gateway.cluster().topics, gateway.brokers(), targets)


def _named_partition(request: HttpRequest) -> TopicPartition | None:
    """None: all of them."""
    topic = request.GET.get("topic", "")
    return TopicPartition(topic, number_of(request, "partition", _MOST)) if topic else None


def _typed(request: HttpRequest, name: str) -> int:
    try:
        return number_of(request, name, _MOST)
    except Http404:
        raise PlanRefused(f"That is no number of a {name}.") from None
