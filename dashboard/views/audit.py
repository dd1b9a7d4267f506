"""The audit log: what was changed, by whom, and what was refused."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render

from dashboard.forms.audit import AuditSearchForm
from dashboard.models import AuditEntry
from dashboard.permissions import Permission, requires
from dashboard.selectors import audit as selector
from dashboard.selectors.audit import AuditSearch


@requires(Permission.SEE_AUDIT)
def audit(request: HttpRequest) -> HttpResponse:
    form, wanted = _wanted(request)
    number = request.GET.get("page", "1")
    page = selector.page(wanted, int(number) if number.isdecimal() else 1)
    shown = {"form": form, "page": page, "actions": selector.actions()}
    return render(request, "dashboard/audit.html", shown)


@requires(Permission.SEE_AUDIT)
def audit_entry(request: HttpRequest, pk: int) -> HttpResponse:
    entry = get_object_or_404(AuditEntry, pk=pk)
    shown = {"entry": entry, "differences": selector.difference(entry)}
    return render(request, "dashboard/audit_entry.html", shown)


@requires(Permission.SEE_AUDIT)
def audit_csv(request: HttpRequest) -> HttpResponse:
    _, wanted = _wanted(request)
    answer = HttpResponse(selector.as_csv(wanted), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = 'attachment; filename="audit.csv"'
    return answer


def _wanted(request: HttpRequest) -> tuple[AuditSearchForm, AuditSearch]:
    """What cannot be understood is said at its field and left out."""
    form = AuditSearchForm(request.GET)
    form.is_valid()
    given = form.cleaned_data
    return form, AuditSearch(
        given.get("q", ""),
        given.get("who", ""),
        given.get("action", ""),
        given.get("target", ""),
        given.get("source", ""),
        given.get("since"),
        given.get("until"),
        bool(given.get("refused")),
    )
