"""What web and worker have in common as children of the supervisor.

Each holds a lock in the data directory while it lives (``web.lock``), so that a next start can wait
for one whose supervisor was killed. Each ends when its supervisor does, however that was: end of
file on the pipe in ``ODRADEK_PARENT_FD``. Once told to end it does so within a bounded time, even
when something in it hangs.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType

from appliance.supervisor.process import PARENT_FD_VARIABLE
from appliance.supervisor.serve_lock import is_locked

READY = "ready"
LOCK_TIMEOUT_S = 30.0
"""How long a predecessor that is stopping is waited for."""

logger = logging.getLogger(__name__)


class ChildError(Exception):
    """It cannot start; the message is what a person is told."""


def lock_path(data_directory: Path, name: str) -> Path:
    return data_directory / f"{name}.lock"


def take_lock(data_directory: Path, name: str) -> int:
    """Held until the process ends, or the descriptor is closed. The file tells the process id."""
    path = lock_path(data_directory, name)
    try:
        data_directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ChildError(f"cannot write {path}: {error.strerror}") from None
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                holder = path.read_text(errors="replace").strip() or "unknown"
                os.close(descriptor)
                raise ChildError(
                    f"{data_directory} has a {name} already, process {holder}"
                ) from None
            time.sleep(0.1)
        else:
            break
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def mark_ready(lock: int) -> None:
    """For the supervisor, which looks at the file of the lock."""
    os.pwrite(lock, f"{os.getpid()} {READY}\n".encode(), 0)


def is_ready(data_directory: Path, name: str) -> bool:
    """Whether a process holds this lock, and has said that it is ready."""
    path = lock_path(data_directory, name)
    try:
        return READY in path.read_text(errors="replace") and is_locked(path)
    except OSError:
        return False


def import_no_test_tools() -> None:
    """kio brings strategies for property tests wherever hypothesis is installed: 0.2 s of a start and 5 MB."""
    sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]


def end_with_parent() -> None:
    """Ask this process to stop (SIGTERM) when its supervisor is gone."""
    given = os.environ.pop(PARENT_FD_VARIABLE, None)
    if given is None:
        return
    descriptor = int(given)
    os.set_inheritable(descriptor, False)

    # Polled, not only read: all children share the pipe, and the broker has made it non-blocking.
    readable = select.poll()
    readable.register(descriptor, select.POLLIN)

    def wait() -> None:
        while True:
            readable.poll()
            try:
                if not os.read(descriptor, 4096):
                    break
            except BlockingIOError:
                continue  # another child has read what was said; only the end counts
        logger.warning("the supervisor is gone, stopping")
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="parent", daemon=True).start()


def end_at_signals_until_served() -> None:
    """Before the real handlers are there: end at once, with the status of an ordered stop."""

    def leave(number: int, frame: FrameType | None) -> None:
        os._exit(0)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)


def end_for_sure(after_s: float) -> None:
    """Called when the end begins: should something hang, the process is gone after this time."""

    def leave() -> None:
        time.sleep(after_s)
        logger.warning("something did not end in %g s, leaving without it", after_s)
        sys.stderr.flush()
        os._exit(0)

    threading.Thread(target=leave, name="end", daemon=True).start()


def be_first_to_go(score: int) -> None:
    """When memory runs out, the kernel shall end this process rather than the broker."""
    try:
        Path("/proc/self/oom_score_adj").write_text(f"{score}\n")
    except OSError:
        logger.debug("oom_score_adj cannot be written", exc_info=True)
