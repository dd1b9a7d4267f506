"""The cleaning child: ``python -m broker.storage.cleaning``, jobs on stdin, what came of them on stdout.

It yields to everybody (nice), is the first to go when memory runs out, and ends with its parent. It
reads sealed segments and writes ``.cleaned`` files; nothing of a log is changed here.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Final

from broker import compiled

_NICE: Final = 10
_OOM_SCORE: Final = "500"
_PR_SET_PDEATHSIG: Final = 1


def _yield_to_everybody(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(0)  # it ended before we could ask to end with it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the broker's, who then ends us
    os.nice(_NICE)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(_OOM_SCORE)


def _say(kind: str, **values: Any) -> None:
    sys.stdout.write(json.dumps({"kind": kind, **values}) + "\n")
    sys.stdout.flush()


def _serve() -> None:
    from broker.model.errors import CorruptLogError, DiskFullError
    from broker.storage.cleaning.cleaner import RoundStopped, clean
    from broker.storage.cleaning.job import CleanedGroup, CleaningJob
    from broker.storage.cleaning.throttle import Throttle
    from broker.storage.filesystem import RealFileSystem

    fs = RealFileSystem(64)

    def put_in_place(group: CleanedGroup) -> bool:
        _say("group", old=list(group.old), new=[list(each) for each in group.new])
        answer = sys.stdin.readline()
        return bool(answer) and bool(json.loads(answer)["go"])

    while line := sys.stdin.readline():
        job = CleaningJob.from_json(json.loads(line))
        try:
            result = clean(fs, job, put_in_place, Throttle(job.io_bytes_per_second))
        except RoundStopped:
            _say("stopped")
        except (CorruptLogError, DiskFullError, OSError, MemoryError) as error:
            _say("failed", error=str(error) or type(error).__name__)
        else:
            _say("done", **result._asdict())


def main(serve: Callable[[], None] = _serve) -> None:
    _yield_to_everybody(int(sys.argv[1]))
    compiled.install()
    serve()


if __name__ == "__main__":
    main()
