"""Lines to whoever asked, and a thread that tells stages and tasks while Spark works."""

from __future__ import annotations

import json
import os
import threading
from typing import Any, Final

EVERY_S: Final = 1.0


class Teller:
    """Writes one JSON line at a time to a descriptor of its own."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def tell(self, **document: Any) -> None:
        line = json.dumps(document).encode() + b"\n"
        with self._lock:
            while line:
                line = line[os.write(self._descriptor, line) :]


class Watch:
    """Tells how many stages were begun and how many tasks of the running ones are done."""

    def __init__(self, teller: Teller, spark_context: Any) -> None:
        self._teller = teller
        self._tracker = spark_context.statusTracker()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._seen: set[int] = set()

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(5 * EVERY_S)

    def _run(self) -> None:
        while not self._stopping.wait(EVERY_S):
            try:
                self._look()
            except Exception:  # noqa: BLE001 - figures only; the run tells its own failure
                return

    def _look(self) -> None:
        done = total = 0
        for stage_id in self._tracker.getActiveStageIds():
            self._seen.add(stage_id)
            info = self._tracker.getStageInfo(stage_id)
            if info is not None:
                done, total = done + info.numCompletedTasks, total + info.numTasks
        self._teller.tell(progress={"stages": len(self._seen), "tasks_done": done, "tasks": total})
