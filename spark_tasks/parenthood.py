"""This process, its Java and its workers end when whoever asked for the report is gone.

All of them are in one session, which this process leads. Spark's Java ends by itself at the end of
file on its standard input; that it does so within a bounded time is seen to here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path
from typing import Final

NICE: Final = 10
OOM_SCORE: Final = 500


def step_back() -> None:
    """The broker goes first, for the processor and when memory runs out."""
    with contextlib.suppress(OSError):
        os.nice(NICE - os.nice(0))
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(f"{OOM_SCORE}\n")


def end_with_asker(descriptor: int) -> None:
    """End everything at end of file on ``descriptor``."""

    def wait() -> None:
        while os.read(descriptor, 4096):
            pass
        end_session()

    threading.Thread(target=wait, name="parent", daemon=True).start()


def end_session() -> None:
    """SIGKILL to every process of this session, this one last."""
    own = os.getpid()
    kill_session(os.getsid(0), spare=own)
    os.kill(own, signal.SIGKILL)


def kill_session(session: int, spare: int = 0) -> int:
    """SIGKILL to every process of a session, whatever its group; how many were told."""
    count = 0
    for pid in members(session):
        if pid != spare:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                count += 1
    return count


def members(session: int) -> list[int]:
    """Processes of a session that are not dead yet."""
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name of the program, in brackets, may hold anything.
            fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] not in "ZX":
                found.append(int(entry.name))
    return found
