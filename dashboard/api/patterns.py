"""The addresses below ``/api/v1/``: whoever imports this has the whole API."""

from __future__ import annotations

from typing import Any

from dashboard.api import app

urlpatterns = app.urls()
docs: Any = next(each.callback for each in urlpatterns if getattr(each, "name", "") == app.DOCS)
