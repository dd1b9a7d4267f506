"""Every refusal of the API in one shape, whatever refused it.

``{"error": {"code", "message", "hint", "details"}}``: ``code`` is for programs (Kafka's own name of an
error where the cluster refused), ``message`` and ``hint`` are for people, ``details`` say which part of
the request is meant.
"""

from __future__ import annotations

import logging
from typing import Any

from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db import DataError, InterfaceError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from ninja import NinjaAPI, Schema
from ninja.errors import AuthenticationError, HttpError, ValidationError
from pydantic import Field

from dashboard.cluster import KafkaFailure
from dashboard.refusals import refusal_of
from dashboard.scan_pool import Busy
from dashboard.services.alerts import AlertRefused
from dashboard.services.api_tokens import TokenRefused
from dashboard.services.exports import TooMany
from dashboard.services.groups import Refused
from dashboard.services.jobs import AlreadyQueued
from dashboard.services.reports import ReportRefused
from dashboard.services.schedules import ScheduleRefused
from dashboard.services.transactions import TransactionRefused
from dashboard.services.users import UserRefused

logger = logging.getLogger(__name__)

_CODES = {
    400: "malformed",
    401: "unauthenticated",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    422: "invalid",
    429: "too_many",
    503: "unavailable",
}
_KAFKA_STATUS = {
    "UNKNOWN_TOPIC_OR_PARTITION": 404,
    "GROUP_ID_NOT_FOUND": 404,
    "TOPIC_ALREADY_EXISTS": 409,
    "NON_EMPTY_GROUP": 409,
    "TOPIC_AUTHORIZATION_FAILED": 403,
    "GROUP_AUTHORIZATION_FAILED": 403,
    "CLUSTER_AUTHORIZATION_FAILED": 403,
    "REQUEST_TIMED_OUT": 503,
    "LEADER_NOT_AVAILABLE": 503,
    "COORDINATOR_NOT_AVAILABLE": 503,
}


class ErrorDetail(Schema):
    where: str = Field(description="Part of the request, such as body.name or query.limit.")
    message: str


class ErrorBody(Schema):
    code: str = Field(description="For programs; Kafka's own name where the cluster refused.")
    message: str = Field(description="For people.")
    hint: str = Field("", description="What to do about it, where that is known.")
    details: list[ErrorDetail] = Field([], description="Which part of the request is meant.")


class Error(Schema):
    error: ErrorBody


ERRORS = frozenset({400, 401, 403, 404, 409, 422, 429, 503})
"""Statuses that every operation documents with the shape above."""


class NotFound(Exception):
    """What was asked for does not exist; the message says what."""


class Invalid(Exception):
    """A request that makes no sense where types cannot tell."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__(message)
        self.where = where


def refuse(
    status: int,
    message: str,
    *,
    code: str = "",
    hint: str = "",
    details: list[dict[str, str]] | None = None,
) -> HttpResponse:
    body = {
        "code": code or _CODES.get(status, "failed"),
        "message": message,
        "hint": hint,
        "details": details or [],
    }
    answer = JsonResponse({"error": body}, status=status)
    if status == 401:
        answer["WWW-Authenticate"] = 'Bearer realm="odradek"'
    if status == 503:
        answer["Retry-After"] = "2"
    return answer


def connect(api: NinjaAPI) -> None:
    """Make this the only way in which the API refuses."""
    for kind, handler in _HANDLERS.items():
        api.add_exception_handler(kind, handler)


def _of_kafka(request: HttpRequest, failure: Any) -> HttpResponse:
    assert isinstance(failure, KafkaFailure)
    status = 503 if failure.is_transport else _KAFKA_STATUS.get(failure.code, 422)
    refusal = refusal_of(failure)
    return refuse(status, refusal.text, code=failure.code, hint=refusal.hint)


def _of_validation(request: HttpRequest, error: Any) -> HttpResponse:
    assert isinstance(error, ValidationError)
    details = [
        {"where": ".".join(map(str, one["loc"])), "message": str(one["msg"])}
        for one in error.errors
    ]
    return refuse(422, "The request does not make sense.", details=details)


def _of_http(request: HttpRequest, error: Any) -> HttpResponse:
    assert isinstance(error, HttpError)
    return refuse(error.status_code, str(error))


def _of_authentication(request: HttpRequest, error: Any) -> HttpResponse:
    said = str(error)
    text = said if said != "Unauthorized" else "Send a token: Authorization: Bearer odk_…"
    return refuse(401, text)


def _of_invalid(request: HttpRequest, error: Any) -> HttpResponse:
    assert isinstance(error, Invalid)
    details = [{"where": error.where, "message": str(error)}]
    return refuse(422, str(error), details=details)


def _with(status: int) -> Any:
    def handle(request: HttpRequest, error: Any) -> HttpResponse:
        return refuse(status, str(error))

    return handle


def _of_data(request: HttpRequest, error: Any) -> HttpResponse:
    """PostgreSQL is stricter than SQLite: it takes no NUL in a text."""
    return refuse(422, "The request has a value that cannot be stored.")


def _of_database(request: HttpRequest, error: Any) -> HttpResponse:
    logger.error("the database failed at %s: %s", request.path, error)
    return refuse(503, "The database does not answer.")


def _of_404(request: HttpRequest, error: Any) -> HttpResponse:
    return refuse(404, "There is nothing at this address.")


def _of_the_rest(request: HttpRequest, error: Any) -> HttpResponse:
    logger.error("the API failed at %s", request.path, exc_info=error)
    return refuse(500, "Odradek failed to answer. The log of the web process has the reason.")


_HANDLERS: dict[type[Exception], Any] = {
    KafkaFailure: _of_kafka,
    ValidationError: _of_validation,
    AuthenticationError: _of_authentication,
    HttpError: _of_http,
    Invalid: _of_invalid,
    Http404: _of_404,
    NotFound: _with(404),
    SuspiciousOperation: _with(400),
    PermissionDenied: _with(403),
    Refused: _with(409),
    UserRefused: _with(409),
    AlertRefused: _with(409),
    TokenRefused: _with(409),
    AlreadyQueued: _with(409),
    ReportRefused: _with(409),
    ScheduleRefused: _with(409),
    TransactionRefused: _with(409),
    TooMany: _with(409),
    Busy: _with(503),
    DataError: _of_data,
    OperationalError: _of_database,
    InterfaceError: _of_database,
    Exception: _of_the_rest,
}
