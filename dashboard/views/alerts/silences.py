"""Silencing alerts, and ending that."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from dashboard.forms.alerts import SilenceForm
from dashboard.models import AlertSilence
from dashboard.permissions import Permission, requires
from dashboard.services import alerts, audit


@require_http_methods(["GET", "POST"])
@requires(Permission.CHANGE_ALERTS)
def create(request: HttpRequest) -> HttpResponse:
    """``rule`` and ``targets`` of the query fill the form."""
    initial = {"rule": request.GET.get("rule"), "targets": request.GET.get("targets", "*")}
    form = SilenceForm(request.POST or None, initial=initial)
    if request.method == "POST" and form.is_valid():
        given = form.cleaned_data
        try:
            alerts.silence(
                actor=audit.actor_of(request),
                rule=given["rule"],
                targets=given["targets"],
                reason=given["reason"],
                until=given["until"],
            )
        except alerts.AlertRefused as error:
            form.add_error(None, str(error))
        else:
            messages.success(request, "Silenced.")
            return redirect("alerts")
    return render(request, "dashboard/alert_silence.html", {"form": form})


@require_POST
@requires(Permission.CHANGE_ALERTS)
def end(request: HttpRequest, pk: int) -> HttpResponse:
    silence = get_object_or_404(AlertSilence, pk=pk)
    alerts.end_silence(actor=audit.actor_of(request), silence=silence)
    messages.success(request, "The silence is over.")
    return redirect("alerts")
