"""One address for a page and for the part of it that htmx asks for again."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import patch_vary_headers

REQUEST_HEADER = "HX-Request"


def wants_part(request: HttpRequest) -> bool:
    return request.headers.get(REQUEST_HEADER) == "true"


def page_or_part(
    request: HttpRequest, page: str, part: str, context: dict[str, Any]
) -> HttpResponse:
    """``page`` and ``part`` are templates below ``dashboard/``; caches are told that there are two."""
    response = render(request, f"dashboard/{part if wants_part(request) else page}", context)
    patch_vary_headers(response, [REQUEST_HEADER])
    return response
