"""What browsers and programs can make the web process log, kept to a line a second each.

Django logs a line for every refused request (404, 403, a foreign host's name), with the request
beside it; who asks is the cause (``broker.log_limit``). A thread tells what was held back, and lives only as
long as there is something to tell.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from broker.log_limit import LogLimit

TICK_SECONDS: Final = 1.0
#: What a client's address would be, where it has none.
UNKNOWN: Final = "a client"
#: Tells no addresses; the audit page does.
SIGN_INS: Final = "axes"
REFUSALS: Final = "django.security"


class RequestLogLimit(LogLimit):
    """A filter for Django's ``LOGGING``."""

    def __init__(self) -> None:
        super().__init__()
        self._starting = threading.Lock()
        self._is_ticking = False

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith(REFUSALS):
            record.exc_info = record.exc_text = (
                None  # the client's fault: where ours stood says nothing
            )
        is_written = super().filter(record)
        if not is_written:
            with self._starting:
                if not self._is_ticking:
                    self._is_ticking = True
                    threading.Thread(target=self._tick, name="log limit", daemon=True).start()
        return is_written

    def cause_of(self, record: logging.LogRecord) -> str | None:
        cause = super().cause_of(record)
        request = getattr(record, "request", None)
        if cause is not None:
            return cause
        if request is None:
            return "sign-ins" if record.name.partition(".")[0] == SIGN_INS else None
        from dashboard.addresses import client_address  # Django's settings are read by now

        return client_address(request) or UNKNOWN

    def _tick(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(TICK_SECONDS)
            self.tick()
            with self._starting:
                if not self.is_counting:
                    self._is_ticking = False
                    return
