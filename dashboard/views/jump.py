"""Going anywhere by name: a box over every page, and a page of its own without JavaScript."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from dashboard.context import navigation
from dashboard.selectors.jump import LONGEST, places
from dashboard.snapshots import shelf
from dashboard.views.parts import page_or_part


@require_safe
def jump(request: HttpRequest) -> HttpResponse:
    text = request.GET.get("to", "")[:LONGEST]
    found = places(request.user, navigation(request, request.user), shelf.peek(), text)
    context = {"places": found, "text": text}
    return page_or_part(request, "jump.html", "parts/jump_found.html", context)
