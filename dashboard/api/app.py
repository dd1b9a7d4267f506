"""The API put together: its parts, its errors, its schema and the page that explains it."""

from __future__ import annotations

import json
from functools import wraps
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import URLPattern, URLResolver, re_path
from django.views.decorators.csrf import csrf_exempt
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError
from ninja.openapi.docs import Swagger
from ninja.openapi.schema import OpenAPISchema

from dashboard.api import (
    alert_channels,
    alert_rules,
    alerts,
    cluster,
    errors,
    exports,
    groups,
    jobs,
    people,
    records,
    report_setup,
    schedules,
    topics,
    transactions,
)
from dashboard.api.auth import Token, may
from dashboard.permissions import Permission

DESCRIPTION = """\
What the pages can do with the cluster, its records, groups, alerts, jobs, reports and people. Authenticate with a token (made under *API tokens* in the menu):
`Authorization: Bearer odk_…`. A browser's session works too; what changes something then needs
`X-CSRFToken`.

* Numbers of 64 bits (offsets, sizes) are JSON integers: read them as such, not as doubles.
* A time comes twice: `x_ms`, milliseconds since 1970, and `x_time`, RFC 3339 in UTC.
* `null` is what this cluster does not tell.
* Every refusal has the shape `Error`; `error.code` is for programs.
* Figures come from the newest snapshot: `taken_ms` says when it was taken.
* A request holds 8 MiB at most, its address and each header 16 KiB: a larger one is refused with 413 or
  431, in plain words, before it is read.
* Twenty wrong tokens from one address within 15 minutes: further ones are refused with 429.
"""


class Docs(Swagger):
    """Swagger UI from this host, within the dashboard's own policy: no inline script."""

    def render_page(self, request: HttpRequest, api: NinjaAPI, **kwargs: Any) -> HttpResponse:
        shown = {
            "swagger_settings": json.dumps(
                {**self.settings, "url": self.get_openapi_url(api, kwargs)}, indent=1
            )
        }
        return render(request, "dashboard/api_docs.html", shown)


TOO_LARGE = {
    "413": ("RequestTooLarge", "The request holds more than 8 MiB."),
    "431": ("AddressTooLong", "The address or a header is longer than 16 KiB."),
}
"""Refused by the server in front (``appliance.guarded_http``), before it is known what is asked for."""


class Api(NinjaAPI):
    """Its document also has what is refused before an operation is reached."""

    def get_openapi_schema(self, **options: Any) -> OpenAPISchema:
        schema = super().get_openapi_schema(**options)
        text = {"text/plain": {"schema": {"type": "string"}}}
        schema["components"]["responses"] = {
            name: {"description": why, "content": text} for name, why in TOO_LARGE.values()
        }
        for methods in schema["paths"].values():
            for operation in methods.values():
                operation["responses"] |= {
                    status: {"$ref": f"#/components/responses/{name}"}
                    for status, (name, _) in TOO_LARGE.items()
                }
        return schema


def make() -> NinjaAPI:
    api = Api(
        title="Odradek",
        version=settings.ODRADEK_VERSION,
        description=DESCRIPTION,
        urls_namespace="api",
        openapi_url="/openapi.json",
        docs_url="/docs",
        docs=Docs({"persistAuthorization": False, "tryItOutEnabled": False, "deepLinking": True}),
        auth=may(Permission.SEE),
    )
    errors.connect(api)
    for prefix, router in (
        ("", cluster.router),
        ("", topics.router),
        ("", records.router),
        ("", exports.router),
        ("", groups.router),
        ("", transactions.router),
        ("", alerts.router),
        ("", alert_rules.router),
        ("", alert_channels.router),
        ("", jobs.router),
        ("", schedules.router),
        ("", report_setup.router),  # and all others of reports
        ("", people.router),
    ):
        api.add_router(prefix, router)
    return api


api = make()
DOCS = "openapi-view"
GUARDED = frozenset({"openapi-json", DOCS})
"""For people and programs that are signed in or show a token; the API guards the rest itself."""


def urls() -> list[URLPattern | URLResolver]:
    found: list[URLPattern | URLResolver] = []
    for pattern in api.urls[0]:
        assert isinstance(pattern, URLPattern)
        is_guarded = pattern.name in GUARDED
        if pattern.name == "api-root":
            pattern.callback = nothing  # by itself it is a page that is not found
        else:
            pattern.callback = (_guarded if is_guarded else _exposed)(pattern.callback)
        found.append(pattern)
    # Any rest, one with the end of a line too, which the converter `path` does not take.
    found.append(re_path("", nothing, name="nothing"))
    return found


def _exposed(view: Any) -> Any:
    """A view that the API guards by itself, and whose refused methods have the API's shape."""

    @wraps(view)
    def exposed(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        answer: HttpResponse = view(request, *args, **kwargs)
        if answer.status_code == 405:
            refused = errors.refuse(405, f"{request.method} cannot be used here.")
            refused["Allow"] = answer.get("Allow", "")
            return refused
        return answer

    return login_not_required(exposed)


def _guarded(view: Any) -> Any:
    """A view that knows nothing of tokens: browsers sign in first, programs show one."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated:
            if "Authorization" not in request.headers:
                return redirect_to_login(request.get_full_path())
            try:
                if Token(Permission.SEE)(request) is None:
                    raise AuthenticationError
            except (AuthenticationError, HttpError, PermissionDenied) as error:
                return api.on_exception(request, error)
        answer: HttpResponseBase = view(request, *args, **kwargs)
        return answer

    return login_not_required(guarded)


@csrf_exempt
@login_not_required
def nothing(request: HttpRequest) -> HttpResponse:
    return errors.refuse(404, "There is nothing at this address.")
