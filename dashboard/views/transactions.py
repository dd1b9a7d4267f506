"""Pages of transactions: those under way and those that hang, and ending one of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from broker.model.ids import TopicPartition
from dashboard import clusters
from dashboard.permissions import Permission, requires
from dashboard.selectors import transactions as selector
from dashboard.services import audit
from dashboard.services import transactions as service
from dashboard.snapshots import look_now
from dashboard.views.parts import number_of, page_or_part

PER_PAGE: Final = 100
MAX_ID_LENGTH: Final = 32_767
_LARGEST: Final = (1 << 63) - 1


@require_safe
def transactions(request: HttpRequest) -> HttpResponse:
    search = request.GET.get("q", "").strip()[:300]
    topic = request.GET.get("topic", "").strip()[:249]
    answer = selector.look(look_now(), topic)
    seen = answer.value
    context: dict[str, Any] = {
        "answer": answer,
        "seen": seen,
        "search": search,
        "topic": topic,
        "max_partitions": selector.MAX_PARTITIONS,
        "is_filtered": bool(search or topic),
    }
    if seen is not None:
        rows = selector.rows_of(seen.under_way, search, topic)
        context["page"] = Paginator(rows, PER_PAGE).get_page(request.GET.get("page"))
    response = page_or_part(request, "transactions.html", "parts/transactions_live.html", context)
    response["Cache-Control"] = "no-store"
    return response


@require_http_methods(["GET", "HEAD", "POST"])
@requires(Permission.ABORT_TRANSACTIONS)
def abort(request: HttpRequest) -> HttpResponse:
    """Of a transaction under way: what will happen, and then its end."""
    transactional_id = request.GET.get("id", "")
    if not transactional_id or len(transactional_id) > MAX_ID_LENGTH:
        raise Http404("The address names no transaction.")
    producer_id = number_of(request, "producer", _LARGEST)
    if request.method != "POST":
        context = {"transactional_id": transactional_id, "producer_id": producer_id}
        return render(request, "dashboard/transaction_abort.html", context)
    end = partial(service.abort, transactional_id=transactional_id, producer_id=producer_id)
    return _ended(request, end, f"The transaction of {transactional_id} is being aborted.")


@require_http_methods(["GET", "HEAD", "POST"])
@requires(Permission.ABORT_TRANSACTIONS)
def abort_hanging(request: HttpRequest) -> HttpResponse:
    """Of one that hangs on a partition: what will happen, and then the marker."""
    topic = request.GET.get("topic", "")
    if not topic:
        raise Http404("The address names no topic.")
    partition = TopicPartition(topic, number_of(request, "partition", _LARGEST))
    producer_id = number_of(request, "producer", _LARGEST)
    start_offset = number_of(request, "start", _LARGEST)
    if request.method != "POST":
        context = {
            "partition": partition,
            "producer_id": producer_id,
            "start_offset": start_offset,
        }
        return render(request, "dashboard/transaction_abort.html", context)
    end = partial(
        service.abort_hanging,
        partition=partition,
        producer_id=producer_id,
        start_offset=start_offset,
    )
    return _ended(request, end, f"What hung on {partition} is aborted.")


def _ended(request: HttpRequest, end: Callable[..., None], words: str) -> HttpResponse:
    try:
        end(gateway=clusters.gateway(), actor=audit.actor_of(request))
    except service.TransactionRefused as refused:
        messages.error(request, str(refused))
    else:
        messages.success(request, words)
    return redirect("transactions")
