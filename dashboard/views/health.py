"""Probes of orchestrators, figures for Prometheus, and how far the broker's start is.

``appliance.asgi`` answers the probes before they come here; these views hold where it does not serve.
"""

from __future__ import annotations

import hmac

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_safe

from dashboard.models import Role
from dashboard.readiness import readiness


@login_not_required
@never_cache
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """This process lives. Nothing else is asked: a broker that starts is no reason to kill it."""
    return HttpResponse("ok\n", content_type="text/plain")


@login_not_required
@never_cache
@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """The broker answers; 503 and how far it is while it does not."""
    start = readiness.ask()
    status = 200 if start.is_ready else 503
    return HttpResponse(start.as_json(), content_type="application/json", status=status)


@require_GET
@never_cache
def broker_start(request: HttpRequest) -> HttpResponse:
    """The part of every page that shows the broker's start; empty once it answers."""
    return render(request, "dashboard/parts/broker_start.html", {"start": readiness.ask()})


@login_not_required
@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """For who brings the configured token, or is a signed-in admin."""
    if not _may_read_metrics(request):
        response = HttpResponse("a bearer token is needed\n", content_type="text/plain", status=401)
        response["WWW-Authenticate"] = 'Bearer realm="metrics"'
        return response
    from dashboard import metrics as figures

    return HttpResponse(figures.render(), content_type=figures.CONTENT_TYPE)


def _may_read_metrics(request: HttpRequest) -> bool:
    token = settings.ODRADEK_METRICS_TOKEN
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if token and scheme.lower() == "bearer":
        return hmac.compare_digest(given.strip().encode(), token.encode())
    user = request.user
    return bool(user.is_authenticated and user.is_active and user.role == Role.ADMIN)
