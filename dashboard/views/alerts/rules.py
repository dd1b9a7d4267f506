"""Making, changing, switching and deleting rules."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from dashboard.alerting.defaults import default_values
from dashboard.alerting.kinds import KINDS
from dashboard.forms.alerts import RuleForm
from dashboard.models import AlertRule
from dashboard.permissions import Permission, requires
from dashboard.services import alerts, audit


@require_http_methods(["GET", "POST"])
@requires(Permission.CHANGE_ALERTS)
def create(request: HttpRequest) -> HttpResponse:
    kind = KINDS.get(request.GET.get("kind", ""))
    if kind is None:
        raise Http404("There is no such kind of rule.")
    return _edit(request, AlertRule(**{**default_values(kind), "is_on": True}))


@require_http_methods(["GET", "POST"])
@requires(Permission.CHANGE_ALERTS)
def change(request: HttpRequest, pk: int) -> HttpResponse:
    return _edit(request, get_object_or_404(AlertRule, pk=pk))


def _edit(request: HttpRequest, rule: AlertRule) -> HttpResponse:
    form = RuleForm(request.POST or None, instance=rule)
    if request.method == "POST" and form.is_valid():
        try:
            alerts.save_rule(
                actor=audit.actor_of(request),
                rule=form.instance,
                channels=list(form.cleaned_data["channels"]),
            )
        except alerts.AlertRefused as error:
            form.add_error(None, str(error))
        else:
            messages.success(request, f"Rule {rule.name} saved.")
            return redirect("alerts")
    context = {"form": form, "rule": rule, "kind": KINDS[rule.kind]}
    return render(request, "dashboard/alert_rule.html", context)


@require_POST
@requires(Permission.CHANGE_ALERTS)
def switch(request: HttpRequest, pk: int) -> HttpResponse:
    rule = get_object_or_404(AlertRule, pk=pk)
    is_on = request.POST.get("is_on") == "1"
    alerts.switch_rule(actor=audit.actor_of(request), rule=rule, is_on=is_on)
    messages.success(request, f"Rule {rule.name} is {'on' if is_on else 'off'}.")
    return redirect("alerts")


@require_POST
@requires(Permission.CHANGE_ALERTS)
def delete(request: HttpRequest, pk: int) -> HttpResponse:
    rule = get_object_or_404(AlertRule, pk=pk)
    try:
        alerts.delete_rule(actor=audit.actor_of(request), rule=rule)
    except alerts.AlertRefused as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"Rule {rule.name} deleted.")
    return redirect("alerts")
