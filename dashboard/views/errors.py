"""Error pages: what happened and what to do next; never a stack trace."""

from __future__ import annotations

import sys

from django.db import DatabaseError, InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string

from dashboard.views.parts import wants_part

API = "/api/"
DATABASE_TITLE = "The database does not answer"
DATABASE_TEXT = (
    "Odradek keeps people, alerts and the audit log there. It asks again with each page: nothing has "
    "to be started anew once the database is back. The log of the web process has the reason."
)


def _page(request: HttpRequest, status: int, title: str, text: str) -> HttpResponse:
    # An htmx request puts the words where its answer would have gone.
    is_part = wants_part(request)
    template = "dashboard/parts/error.html" if is_part else "dashboard/error.html"
    return render(request, template, {"title": title, "text": text}, status=status)


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    return _page(request, 400, "That address does not make sense", str(exception or ""))


def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    text = str(exception or "") or "Your role does not allow this."
    return _page(request, 403, "Not allowed", f"{text} An admin can change your role under Users.")


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    given = exception.args[0] if exception is not None and exception.args else ""
    text = given if isinstance(given, str) and given else "There is no page at this address."
    return _page(request, 404, "Not found", text)


def server_error(request: HttpRequest) -> HttpResponse:
    if is_database_away(sys.exc_info()[1]):
        return _database_away(request)
    text = "Odradek failed to make this page. The log of the web process has the reason."
    return _page(request, 500, "Something broke", text)


def is_database_away(error: BaseException | None) -> bool:
    """Whether the database is gone, locked or damaged, rather than asked something wrong."""
    # What SQLite says of a damaged file is no more special than DatabaseError itself.
    return isinstance(error, OperationalError | InterfaceError) or type(error) is DatabaseError


def _database_away(request: HttpRequest) -> HttpResponse:
    """Made without person, session and messages, which are all in the database."""
    if request.path_info.startswith(API):
        from dashboard.api.errors import refuse  # which knows every part of the API

        return refuse(503, f"{DATABASE_TITLE}.")
    is_part = wants_part(request)
    template = "dashboard/parts/error.html" if is_part else "dashboard/error.html"
    said = {"title": DATABASE_TITLE, "text": DATABASE_TEXT, "theme": "auto"}
    answer = HttpResponse(render_to_string(template, said), status=503)
    answer["Retry-After"] = "5"
    return answer


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    text = (
        "The form was sent from a page that is too old, or from another address than this one. "
        "Go back, load the page again, and send it once more. Behind a reverse proxy, set public_url."
    )
    return _page(request, 403, "The form was not accepted", text)
