"""New records from a form, also one that starts from a record which is there (``?from=0:42``)."""

from __future__ import annotations

import re
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from broker.model.ids import TopicPartition
from dashboard import clusters
from dashboard.answers import answers
from dashboard.cluster import KafkaFailure, Record
from dashboard.forms.produce import FORMATS, NULL, SEPARATORS, ProduceForm
from dashboard.permissions import Permission, check, requires
from dashboard.refusals import refusal_of
from dashboard.services.audit import actor_of
from dashboard.services.producing import COMPRESSIONS, Produced
from dashboard.services.producing import produce as send
from dashboard.views.parts import wants_part
from dashboard.views.topics.frame import frame_of

PLACE = re.compile(r"(\d{1,6}):(\d{1,19})")
READ_WAIT_S = 5.0
READ_ATTEMPTS = 50


@require_http_methods(["GET", "HEAD", "POST"])
@requires(Permission.PRODUCE)
def produce(request: HttpRequest, name: str) -> HttpResponse:
    frame = frame_of(request, name, "topic_produce")
    context: dict[str, Any] = {
        **frame.context,
        "formats": FORMATS,
        "header_formats": {**FORMATS, NULL: "null"},
        "separators": SEPARATORS,
        "compressions": COMPRESSIONS,
    }
    if request.method == "POST":
        return _send(request, name, context)
    context["form"] = ProduceForm()
    if place := request.GET.get("from"):
        context |= _again(request, name, place)
    return render(request, "dashboard/topics/produce.html", context)


def _send(request: HttpRequest, name: str, context: dict[str, Any]) -> HttpResponse:
    """To htmx the outcome alone, so that the form keeps what was typed; else the page again."""
    form = context["form"] = ProduceForm.of(request.POST)
    records = form.records()
    if not form.errors:
        try:
            context["produced"] = produced = send(
                actor=actor_of(request),
                topic=name,
                records=records,
                partition=form.partition_index,
                compression=form.compression,
            )
            context["refusals"] = _refusals(produced)
        except KafkaFailure as failure:
            context["refusals"] = [(None, refusal_of(failure))]
    is_done = not form.errors and not context["refusals"]
    if wants_part(request):
        return render(request, "dashboard/topics/produced.html", context)
    if is_done:
        messages.success(request, f"{context['produced'].count} records were produced.")
        return redirect("topic_produce", name)
    return render(request, "dashboard/topics/produce.html", context, status=422)


def _refusals(produced: Produced) -> list[tuple[int | None, Any]]:
    shown = [(number + 1, refusal_of(failure)) for number, failure in produced.failures[:10]]
    return list(shown)


def _again(request: HttpRequest, name: str, place: str) -> dict[str, Any]:
    """The form filled with a record that is there; only for those who may read it."""
    check(request.user, Permission.READ_RECORDS, name)
    match = PLACE.fullmatch(place)
    if match is None:
        return {"again_problem": f"“{place}” names no record: it has to be partition:offset."}
    key = TopicPartition(name, int(match[1]))
    question = ("record", name, place)
    answer = answers.ask(question, lambda: _read_one(key, int(match[2])), wait_s=READ_WAIT_S)
    answers.forget(question)  # It may be large, and nobody else asks for it.
    if answer.value is None:
        reason = (
            answer.failure.message if answer.failure else "the cluster has not answered in time"
        )
        return {"again_problem": f"Record {place} cannot be read: {reason}."}
    return {"form": ProduceForm.again(answer.value), "again": place}


def _read_one(key: TopicPartition, offset: int) -> Record:
    with clusters.gateway().reader({key: offset}) as reader:
        for _ in range(READ_ATTEMPTS):
            for item in reader.read(0.1):
                if isinstance(item, Record) and item.offset == offset:
                    return item
                raise KafkaFailure("OFFSET_OUT_OF_RANGE", "it is not in the log any more")
    raise KafkaFailure("TIMED_OUT", "the cluster did not send it in time", is_transport=True)
