"""WebSocket addresses."""

from __future__ import annotations

from typing import Any

from channels.security.websocket import WebsocketDenier
from django.urls import path, re_path

from dashboard.consumers.live_tail import LiveTail

websocket_urlpatterns: list[Any] = [
    path("tail/socket/", LiveTail.as_asgi()),
    re_path(r"", WebsocketDenier.as_asgi()),
]
"""Below the pages that use them, so that a path prefix holds for both."""
