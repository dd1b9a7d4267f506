"""Threads of clients, whose errors are kept and whose end is waited for no longer than told.

A client that hangs is a finding like any other: it must not keep the run from telling of it.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any


class Workers:
    """`failed` has a sentence for each that ended by an error or not at all."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def start(self, work: Callable[..., None], *arguments: Any) -> threading.Thread:
        name = " ".join((work.__name__.strip("_"), *map(str, arguments)))

        def run() -> None:
            try:
                work(*arguments)
            except Exception as error:
                told = traceback.extract_tb(error.__traceback__)[-1]
                self.failed.append(f"{name}: {error!r}, line {told.lineno} of {told.name}")

        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def join(self, threads: Iterable[threading.Thread], seconds: float) -> None:
        """All of them together have so long."""
        end = time.monotonic() + seconds
        for thread in threads:
            thread.join(max(end - time.monotonic(), 0))
            if thread.is_alive():
                self.failed.append(f"{thread.name} has not ended within {seconds:g} s")

    def bounded(self, seconds: float, work: Callable[[], None]) -> None:
        """Of a call that has no limit of its own."""
        self.join([self.start(work)], seconds)
