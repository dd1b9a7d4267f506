"""What views share: one address for a page and for the part of it that htmx asks for again, and
numbers that an address has."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
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


def number_of(request: HttpRequest, name: str, most: int) -> int:
    """Of the address, from 0 to ``most``. Raises Http404."""
    text = request.GET.get(name, "")
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    if not is_number or int(text) > most:
        raise Http404(f"The address has no {name}.")
    return int(text)
