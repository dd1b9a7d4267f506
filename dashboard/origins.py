"""Where a WebSocket may come from: the page's own scheme, host and port, or those of public_url.

A browser sends its cookies with a WebSocket that any page of any site opens, so the origin has to be
our own, exactly; that the host is one under which we answer (ALLOWED_HOSTS) is asked too, against
names that somebody else points at us. What a proxy says of scheme and host counts only where
settings say that there is one.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.http.request import split_domain_port, validate_host

_DEFAULT_PORTS = {"http": 80, "https": 443}
Origin = tuple[str, str, int]


class OwnOrigin:
    """Refuses, before it is accepted, a WebSocket of any other page than ours."""

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> Any:
        if is_own_origin(scope["headers"]):
            return await self._application(scope, receive, send)
        return await WebsocketDenier()(scope, receive, send)


def is_own_origin(headers: list[tuple[bytes, bytes]]) -> bool:
    given = _only(headers, b"origin")
    origin = None if given is None else parse_origin(given)
    if origin is None:
        return False
    if settings.ODRADEK_PUBLIC_URL and origin == parse_origin(settings.ODRADEK_PUBLIC_URL):
        return True
    host, scheme = _only(headers, b"host"), "http"
    if getattr(settings, "USE_X_FORWARDED_HOST", False):
        host = _only(headers, b"x-forwarded-host") or host
    if getattr(settings, "SECURE_PROXY_SSL_HEADER", None):
        # Each proxy of a chain may add what it saw; Django takes the first, too.
        scheme = (_only(headers, b"x-forwarded-proto") or scheme).split(",")[0].strip().lower()
    if host is None or not validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS):
        return False
    return origin == parse_origin(f"{scheme}://{host}")


def parse_origin(text: str) -> Origin | None:
    """(scheme, host, port); None for ``null`` and everything else that is no web page's."""
    try:
        parts = urlsplit(text.lower())
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or parts.username is not None:
        return None
    return parts.scheme, parts.hostname, port or _DEFAULT_PORTS[parts.scheme]


def _only(headers: list[tuple[bytes, bytes]], name: bytes) -> str | None:
    """A header's value, if it is there once."""
    found = [value for given, value in headers if given == name]
    return found[0].decode("latin1") if len(found) == 1 else None
