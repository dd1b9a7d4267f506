"""The ASGI application: HTTP to Django, WebSockets to Channels, both behind one path prefix."""

from __future__ import annotations

import asyncio
import os
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "appliance.settings")

from django.core.asgi import get_asgi_application

django_application = get_asgi_application()

from channels.routing import ProtocolTypeRouter, URLRouter
from channels.sessions import CookieMiddleware
from django.conf import settings

from dashboard.origins import OwnOrigin
from dashboard.readiness import readiness
from dashboard.routing import websocket_urlpatterns


def inside(path: str, prefix: str) -> str:
    """The path as the routes know it, whether or not a proxy has cut the prefix off."""
    if path == prefix:
        return "/"
    return path[len(prefix) :] if prefix and path.startswith(prefix + "/") else path


class AtPrefix:
    """HTTP paths with the prefix, also where a proxy has cut it off: links are made from them.

    The probes are answered here: they must depend neither on a database nor on the host's name that
    an orchestrator happens to ask by, and ``/healthz`` on no thread either.
    """

    def __init__(self, application: Any, prefix: str) -> None:
        self._application = application
        self._prefix = prefix

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> Any:
        path = inside(scope["path"], self._prefix)
        if path == "/healthz":
            return await _say(scope, send, 200, b"text/plain", b"ok\n")
        if path == "/readyz":
            start = await asyncio.to_thread(readiness.ask)
            status = 200 if start.is_ready else 503
            return await _say(scope, send, status, b"application/json", start.as_json())
        whole = self._prefix + path
        changed = {**scope, "path": whole, "raw_path": whole.encode(), "root_path": ""}
        return await self._application(changed, receive, send)


class WithoutPrefix:
    """WebSocket paths as the routes know them."""

    def __init__(self, application: Any, prefix: str) -> None:
        self._application = application
        self._prefix = prefix

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> Any:
        path = inside(scope["path"], self._prefix)
        return await self._application({**scope, "path": path, "root_path": ""}, receive, send)


async def _say(scope: dict[str, Any], send: Any, status: int, kind: bytes, body: bytes) -> None:
    headers = [(b"content-type", kind), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    body = b"" if scope["method"] == "HEAD" else body
    await send({"type": "http.response.body", "body": body})


_prefix = settings.FORCE_SCRIPT_NAME or ""
application = ProtocolTypeRouter(
    {
        "http": AtPrefix(django_application, _prefix),
        "websocket": WithoutPrefix(
            OwnOrigin(CookieMiddleware(URLRouter(websocket_urlpatterns))), _prefix
        ),
    }
)
