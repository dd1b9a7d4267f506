"""The child's loop: a request line in, answer lines out. Bounds itself, and ends with its parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
from pathlib import Path
from typing import Any, Final

from broker.clock import Clock, SystemClock
from dashboard.cluster import KafkaFailure
from dashboard.expressions import ExpressionError
from dashboard.gateway import Gateway
from dashboard.scan import exporting, searching
from dashboard.scan.answers import encode
from dashboard.scan.places import RangeError
from dashboard.scan.requests import (
    CheckRequest,
    Cluster,
    ExportRequest,
    RecordRequest,
    Request,
    ScanRequest,
    from_line,
)
from dashboard.scan.walk import BoundReached

IDLE_S: Final = 120
"""A child that is asked nothing for so long ends: it holds 50 MB."""
GRACE_S: Final = 10
"""A scan that overruns its bound by so much hangs in one evaluation: the alarm ends the child."""
MAX_DATA_BYTES: Final = 3 * 1024**3
TIMEOUT_S: Final = 10.0
NICENESS: Final = 10
_PR_SET_PDEATHSIG: Final = 1


def bound_this_process() -> None:
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA_BYTES, MAX_DATA_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def main() -> int:
    bound_this_process()
    source = sys.stdin.buffer
    child = Child(SystemClock())
    while True:
        ready, _, _ = select.select([source], [], [], IDLE_S)
        line = source.readline() if ready else b""
        if not line:
            return 0
        child.answer(from_line(line))


class Child:
    """Keeps its connections between requests about the same cluster."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._cluster: Cluster | None = None
        self._gateway: Gateway | None = None

    def answer(self, request: Request) -> None:
        seconds = 2 if isinstance(request, CheckRequest) else searching.RECORD_SECONDS
        if isinstance(request, ScanRequest | ExportRequest):
            seconds = request.bounds.seconds
        signal.setitimer(signal.ITIMER_REAL, seconds + GRACE_S)
        try:
            self._write({"done": self._perform(request)})
        except ExpressionError as error:
            place = {"line": error.line, "column": error.column}
            self._write({"failed": {"kind": "expression", "text": str(error), **place}})
        except RangeError as error:
            self._write({"failed": {"kind": "range", "text": str(error)}})
        except KafkaFailure as failure:
            self._gateway = None
            self._write({"failed": {"kind": "kafka", "code": failure.code, "text": str(failure)}})
        except BoundReached:
            self._write({"failed": {"kind": "late", "text": "it was not read in time"}})
        except OSError as error:
            self._write({"failed": {"kind": "file", "text": error.strerror or str(error)}})
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _perform(self, request: Request) -> dict[str, Any]:
        if isinstance(request, CheckRequest):
            return searching.check(request)
        gateway = self._connected(request.cluster)
        if isinstance(request, ScanRequest):
            return searching.scan(request, gateway, self._write, self._clock)
        if isinstance(request, RecordRequest):
            return searching.one_record(request, gateway, self._write, self._clock)
        return exporting.export(request, gateway, self._write, self._clock)

    def _connected(self, cluster: Cluster) -> Gateway:
        if self._gateway is None or cluster != self._cluster:
            self._gateway = Gateway(cluster.bootstrap, cluster.properties, timeout_s=TIMEOUT_S)
            self._cluster = cluster
            self._gateway.check()
        return self._gateway

    @staticmethod
    def _write(answer: dict[str, Any]) -> None:
        # A parent that reads no more is gone; SIGPIPE's exception ends us.
        sys.stdout.buffer.write(encode(answer))
        sys.stdout.buffer.flush()
