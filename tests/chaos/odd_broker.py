"""Our broker with a disk and a clock that can be told to misbehave: `python -m tests.chaos.odd_broker DIR …`.

While DIR/slow exists, each sync of a log's file takes as many seconds longer as it says; while DIR/fail
does, nothing can be appended to one; while DIR/step does, the wall clock is wrong by that many milliseconds.
All at the ports that the broker reads them by.
"""

from __future__ import annotations

import errno
import sys
import time
from pathlib import Path
from typing import Any

from broker import clock
from broker.server.main import serve
from broker.storage import filesystem


def misbehave(directory: Path) -> None:
    slow, fail, step = (directory / name for name in ("slow", "fail", "step"))
    kind: Any = filesystem.RealFile
    datasync, append, wall_ms = kind.datasync, kind.append, clock.SystemClock.wall_ms

    def told_by(switch: Path) -> float:
        try:
            return float(switch.read_text() or 0)
        except FileNotFoundError:  # it may go at any moment
            return 0

    def slow_datasync(file: Any, *arguments: Any) -> Any:
        time.sleep(told_by(slow))
        return datasync(file, *arguments)

    def failing_append(file: Any, *arguments: Any) -> Any:
        if fail.exists():
            raise OSError(errno.EIO, "the disk fails")
        return append(file, *arguments)

    def stepping_wall_ms(self: clock.SystemClock) -> int:
        return wall_ms(self) + int(told_by(step))

    kind.datasync = slow_datasync
    kind.append = failing_append
    clock.SystemClock.wall_ms = stepping_wall_ms  # type: ignore[method-assign]


if __name__ == "__main__":
    misbehave(Path(sys.argv[1]))
    sys.exit(serve(sys.argv[2:]))
