"""Does the broker answer, and if not, how far is its start? Asked at most once a second.

A broker of this node tells over its control socket how many of its partitions are open while it
recovers; another cluster only answers or does not. Any thread may ask; one of them does the asking.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from django.conf import settings

from broker.clock import Clock, SystemClock
from dashboard import clusters, probe

KEPT_MS = 1_000
TIMEOUT_S = 0.5
CONTROL_SOCKET = "control.sock"


@dataclass(frozen=True, slots=True)
class BrokerStart:
    """``opened`` of ``total`` partitions; both None when nobody tells."""

    is_ready: bool
    opened: int | None = None
    total: int | None = None

    def as_json(self) -> bytes:
        """What ``/readyz`` answers."""
        found: dict[str, Any] = {"ready": self.is_ready}
        if self.total is not None:
            found["recovery"] = {"opened": self.opened, "total": self.total}
        return json.dumps(found).encode() + b"\n"


class Readiness:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._asked_ms: int | None = None
        self._found = BrokerStart(False)

    def ask(self) -> BrokerStart:
        """Blocks for ``TIMEOUT_S`` twice at most; who comes meanwhile gets the last answer."""
        if not self._lock.acquire(blocking=self._asked_ms is None):
            return self._found
        try:
            now_ms = self._clock.monotonic_ms()
            if self._asked_ms is None or now_ms - self._asked_ms >= KEPT_MS:
                self._found = _look()
                self._asked_ms = self._clock.monotonic_ms()
            return self._found
        finally:
            self._lock.release()


def _look() -> BrokerStart:
    if any(_answers(address) for address in _addresses()):
        return BrokerStart(True)
    if settings.ODRADEK_CLUSTER:
        return BrokerStart(False)
    recovery = _recovery(Path(settings.DATA_DIR))
    return BrokerStart(False, *recovery) if recovery is not None else BrokerStart(False)


def _addresses() -> list[tuple[str, int]]:
    return [probe.split_address(each) for each in clusters.bootstrap().split(",")[:3]]


def _answers(address: tuple[str, int]) -> bool:
    try:
        probe.ask_api_versions(address, TIMEOUT_S)
    except OSError:
        return False
    return True


def _recovery(data_directory: Path) -> tuple[int, int] | None:
    """What the control socket says; None when nobody listens there."""
    try:
        answer = _stats(data_directory)
        recovery = answer["recovery"]
        return int(recovery["opened"]), int(recovery["total"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _stats(data_directory: Path) -> Any:
    # A socket's path has room for 108 bytes only.
    descriptor = os.open(data_directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(TIMEOUT_S)
            connection.connect(f"/proc/self/fd/{descriptor}/{CONTROL_SOCKET}")
            connection.sendall(b'{"command": "stats"}\n')
            with connection.makefile("rb") as lines:
                return json.loads(lines.readline())
    finally:
        os.close(descriptor)


readiness = Readiness(SystemClock())
"""Of this process."""
