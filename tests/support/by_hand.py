"""Time, threads and tasks that move only when a test says so.

``ManualScheduler`` is the loop's share in waiting (``replication.delayed.Scheduler``), and
``ManualThreads`` the thread pools (``replication.background.Background`` and the readers of the
server): work is kept until ``run`` does it, so that a test decides what overtakes what.
``ManualTasks`` (``server.tasks.TaskGroup``) runs coroutines that do nothing but let others run.
"""

from __future__ import annotations

import heapq
import itertools
import os
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

Then = Callable[[Any, Exception | None], None]


class Timer:
    def __init__(self, due_ms: float, callback: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualScheduler:
    """A clock, too: both of its times move together by ``advance``, ``wall_ahead_ms`` apart."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000
        self.wall_ahead_ms = 0
        self._soon: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()

    def wall_ms(self) -> int:
        return self.now_ms + self.wall_ahead_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(self.now_ms + delay_ms, callback)
        heapq.heappush(self._timers, (timer.due_ms, next(self._numbers), timer))
        return timer

    @property
    def timers(self) -> list[Timer]:
        """Those that still wait."""
        return [timer for _, _, timer in self._timers if timer.callback is not None]

    def run(self) -> int:
        """Everything that shall be called soon; gives how much that was."""
        count = 0
        while self._soon:
            self._soon.popleft()()
            count += 1
        return count

    def advance(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        self.run()
        while self._timers and self._timers[0][0] <= end_ms:
            due_ms, _, timer = heapq.heappop(self._timers)
            callback, timer.callback = timer.callback, None
            if callback is not None:
                self.now_ms = max(self.now_ms, int(due_ms))
                callback()
                self.run()
        self.now_ms = end_ms


class Job:
    def __init__(self, kind: str, work: Callable[[], Any], then: Then) -> None:
        self.kind = kind
        self._work = work
        self._then = then

    def run(self, failure: Exception | None = None) -> None:
        """Do the work, or fail it, and report."""
        result = None
        if failure is None:
            try:
                result = self._work()
            except Exception as error:
                failure = error
        self._then(result, failure)


class ManualThreads:
    def __init__(self, can_datasync: bool = False) -> None:
        self.jobs: list[Job] = []
        #: Whether the kernel syncs by itself here: then plain flushes are jobs of kind "datasync".
        self.can_datasync = can_datasync

    def datasync(
        self, descriptors: Sequence[int], then: Callable[[Exception | None], None]
    ) -> bool:
        def work() -> None:
            for descriptor in descriptors:
                os.fdatasync(descriptor)

        self.jobs.append(Job("datasync", work, lambda _, error: then(error)))
        return True

    def compute(self, work: Callable[[], Any], then: Then) -> None:
        self.jobs.append(Job("compute", work, then))

    def disk(self, work: Callable[[], Any], then: Then) -> None:
        self.jobs.append(Job("disk", work, then))

    def flush(self, work: Callable[[], Any], then: Then) -> None:
        self.jobs.append(Job("flush", work, then))

    def read(self, work: Callable[[], Any], then: Then) -> None:
        self.jobs.append(Job("read", work, then))

    async def call(self, work: Callable[[], Any]) -> Any:
        """Done at once: whoever awaits it is a task that a test moves."""
        return work()

    computed = call

    def waiting(self, kind: str) -> list[Job]:
        return [job for job in self.jobs if job.kind == kind]

    def take(self, kind: str, number: int = 0) -> Job:
        job = self.waiting(kind)[number]
        self.jobs.remove(job)
        return job

    def run(self) -> int:
        """All work, and what it leads to; gives how many jobs that were."""
        count = 0
        while self.jobs:
            self.jobs.pop(0).run()
            count += 1
        return count


class ManualTasks:
    def __init__(self) -> None:
        self._coroutines: deque[Coroutine[Any, Any, None]] = deque()

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        self._coroutines.append(coroutine)

    def attempt(self, call: Callable[[], None], name: str) -> None:
        call()

    def step(self) -> bool:
        """One turn of one of them; False if there is none."""
        if not self._coroutines:
            return False
        coroutine = self._coroutines.popleft()
        try:
            coroutine.send(None)
        except StopIteration:
            return True
        self._coroutines.append(coroutine)
        return True

    def run(self) -> int:
        """All of them, turn by turn, to their ends; gives the turns."""
        turns = 0
        while self.step():
            turns += 1
        return turns
