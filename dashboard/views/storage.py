"""Storage: every table and folder that the appliance writes, its size and its bound."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from dashboard import room
from dashboard.holdings import holdings
from dashboard.permissions import Permission, requires


@require_safe
@requires(Permission.SEE)
def storage(request: HttpRequest) -> HttpResponse:
    found = holdings()
    context = {
        "holdings": found,
        "total_bytes": sum(each.size_bytes or 0 for each in found),
        "room": room.look(),
    }
    return render(request, "dashboard/storage.html", context)
