"""Scans of this web process: at most so many children at once, a bounded queue, results for a while.

A scan belongs to one person. While it runs, its page asks for it every half second: one that nobody
has asked for a few seconds is stopped, its child killed. What it found stays until RETAINED newer
scans have come, or KEPT_MS have passed.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from broker.clock import Clock, SystemClock
from dashboard.scan.requests import CheckRequest, ExportRequest, RecordRequest, Request
from dashboard.scan_child import ChildGone, ScanChild

logger = logging.getLogger(__name__)

CHILDREN: Final = 2
MAX_WAITING: Final = 8
MAX_OF_PERSON: Final = 3
"""Unfinished scans of one person; the oldest gives way."""
RETAINED: Final = 24
KEPT_MS: Final = 600_000
GONE_MS: Final = 6_000
GRACE_S: Final = 15
"""Later than the child's own alarm."""
RECORD_S: Final = 60
CHECK_S: Final = 2
READ_S: Final = 0.1

State = Literal["waiting", "running", "done", "stopped", "failed"]


class Busy(Exception):
    """Too many scans wait already; the text is for the person."""


@dataclass(slots=True)
class Scan:
    """Written by its runner, read by views: each field is set as a whole."""

    scan_id: str
    owner_id: int
    request: Request
    touched_ms: int
    state: State = "waiting"
    rows: list[dict[str, Any]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    start: dict[int, int] = field(default_factory=dict)
    progress: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] = field(default_factory=dict)
    failure: dict[str, Any] = field(default_factory=dict)
    is_stop_requested: bool = False
    finished_ms: int = 0
    finished: threading.Event = field(default_factory=threading.Event)

    @property
    def is_finished(self) -> bool:
        return self.finished.is_set()

    @property
    def positions(self) -> dict[int, int]:
        return {int(key): at for key, at in self.progress.get("positions", {}).items()}

    @property
    def seconds(self) -> int:
        match self.request:
            case CheckRequest():
                return CHECK_S
            case RecordRequest():
                return RECORD_S
            case _:
                return self.request.bounds.seconds


class ScanPool:
    """``start`` and look again, or ``ask`` and wait. Threads start with the first scan."""

    def __init__(
        self,
        children: int = CHILDREN,
        max_waiting: int = MAX_WAITING,
        clock: Clock | None = None,
        new_child: Callable[[], ScanChild] = ScanChild,
    ) -> None:
        self._size = children
        self._max_waiting = max_waiting
        self._clock = clock or SystemClock()
        self._new_child = new_child
        self._changed = threading.Condition()
        self._waiting: deque[Scan] = deque()
        self._known: dict[str, Scan] = {}
        self._threads: list[threading.Thread] = []

    def start(self, request: Request, owner_id: int) -> Scan:
        """Raises Busy."""
        now_ms = self._clock.monotonic_ms()
        scan = Scan(secrets.token_urlsafe(12), owner_id, request, now_ms)
        with self._changed:
            self._forget(now_ms)
            self._make_way(owner_id)
            for left in [other for other in self._waiting if self._is_left(other)]:
                self._waiting.remove(left)
                self._finish(left, "stopped")
            # Counted over all: a thread may not have taken its first scan yet.
            ahead = sum(not other.is_finished for other in self._known.values())
            if ahead >= self._size + self._max_waiting:
                raise Busy(
                    f"{self._size} searches are running and {ahead - self._size} wait for them:"
                    " try again in a moment"
                )
            self._known[scan.scan_id] = scan
            self._waiting.append(scan)
            if len(self._threads) < self._size:
                name = f"scan-{len(self._threads)}"
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
            self._changed.notify()
        return scan

    def ask(self, request: Request, owner_id: int) -> Scan:
        """Start and wait for the end, which comes: the scan has a bound, and so has the queue."""
        scan = self.start(request, owner_id)
        while not scan.finished.wait(1.0):
            scan.touched_ms = self._clock.monotonic_ms()
        return scan

    def find(self, scan_id: str, owner_id: int) -> Scan | None:
        """Somebody looks at it: that keeps it running."""
        with self._changed:
            scan = self._known.get(scan_id)
        if scan is None or scan.owner_id != owner_id:
            return None
        scan.touched_ms = self._clock.monotonic_ms()
        return scan

    def stop(self, scan: Scan) -> None:
        """Its rows stay. Returns once nothing more comes."""
        scan.is_stop_requested = True
        with self._changed:
            if scan in self._waiting:
                self._waiting.remove(scan)
                self._finish(scan, "stopped")
        scan.finished.wait(5.0)

    def _make_way(self, owner_id: int) -> None:
        own = [
            scan
            for scan in self._known.values()
            if scan.owner_id == owner_id and not scan.is_finished
        ]
        for scan in own[: max(0, len(own) - MAX_OF_PERSON + 1)]:
            scan.is_stop_requested = True
            if scan in self._waiting:
                self._waiting.remove(scan)
                self._finish(scan, "stopped")

    def _forget(self, now_ms: int) -> None:
        finished = [scan for scan in self._known.values() if scan.is_finished]
        surplus = len(finished) - RETAINED
        for number, scan in enumerate(finished):
            if number < surplus or now_ms - scan.finished_ms > KEPT_MS:
                del self._known[scan.scan_id]

    def _finish(self, scan: Scan, state: State) -> None:
        scan.state = state
        scan.finished_ms = self._clock.monotonic_ms()
        scan.finished.set()

    def _run(self) -> None:
        child: ScanChild | None = None
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                scan = self._waiting.popleft()
            state: State = "failed"
            is_at_rest = False
            try:
                if child is None or not child.is_alive:
                    self._end(child)
                    child = self._new_child()
                state, is_at_rest = self._follow(scan, child)
            except ChildGone as gone:
                scan.failure = {"kind": "child", "text": f"The search ended: {gone}."}
            except Exception:
                logger.exception("a scan failed")
                scan.failure = {"kind": "child", "text": "The search failed; the log says why."}
            self._finish(scan, state)
            if not is_at_rest:
                # A new child at once: it is ready when the next scan comes.
                self._end(child)
                child = None
                with contextlib.suppress(OSError):
                    child = self._new_child()

    @staticmethod
    def _end(child: ScanChild | None) -> None:
        if child is not None:
            with contextlib.suppress(OSError):
                child.kill()

    def _follow(self, scan: Scan, child: ScanChild) -> tuple[State, bool]:
        """Until the scan's end, whoever brings it; and whether the child waits for its next."""
        if scan.is_stop_requested or self._is_left(scan):
            return "stopped", True
        scan.state = "running"
        child.ask(scan.request)
        end_ms = self._clock.monotonic_ms() + (scan.seconds + GRACE_S) * 1000
        while True:
            answer = child.read(READ_S)
            if answer is not None and self._take(scan, answer):
                return "failed" if scan.failure else "done", True
            if scan.is_stop_requested or self._is_left(scan):
                return "stopped", False
            if self._clock.monotonic_ms() > end_ms:
                scan.failure = {"kind": "late", "text": "The search did not end in time."}
                return "failed", False

    def _is_left(self, scan: Scan) -> bool:
        if isinstance(scan.request, ExportRequest):
            return False
        return self._clock.monotonic_ms() - scan.touched_ms > GONE_MS

    @staticmethod
    def _take(scan: Scan, answer: dict[str, Any]) -> bool:
        """Whether it was the last answer."""
        if "row" in answer:
            scan.rows.append(answer["row"])
        if "sample" in answer:
            scan.samples.append(answer["sample"])
        if "start" in answer:
            scan.start = {int(key): at for key, at in answer["start"].items()}
        if "progress" in answer:
            scan.progress = answer["progress"]
        if "failed" in answer:
            scan.failure = answer["failed"]
            return True
        if "done" in answer:
            scan.result = answer["done"]
            scan.progress = scan.result.get("progress", scan.progress)
            return True
        return False


pool = ScanPool()
"""Reads records, for all pages of this process."""
checker = ScanPool(children=1)
"""Tries what is typed on samples: reads nothing, and does not wait behind those who do."""
