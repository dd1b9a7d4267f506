"""The simulated world: time, network, ZooKeeper, and the brokers' machines in it. One seed decides.

``Cluster.run`` is one life story: a warm-up, faults among a steady load, healing, and the question
whether everything has come together again. ``checker`` looks at each step.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from typing import NamedTuple


class Failure(AssertionError):
    """An invariant does not hold."""


class Settings(NamedTuple):
    """Scaled down, in proportion: session 1.5 s, lease 0.6 s, lag 1 s."""

    session_timeout_ms: int = 1500
    lag_max_ms: int = 1000
    lease_ms: int = 600
    warm_up_ms: int = 2500
    faults_until_ms: int = 22_000
    converged_by_ms: int = 34_000
    tick_ms: int = 100
    long_poll_ms: int = 200
    request_timeout_ms: int = 400
    produce_every_ms: int = 100


class World:
    """Time and chance. Events at the same moment happen in the order in which they were made."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.now_ms = 0
        self.wall_step_ms = 0
        self.event_count = 0
        self.fault_count = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._made = 0
        self._cuts: set[tuple[int, int]] = set()
        #: Share of fetch answers whose bytes change on the way.
        self.corruption = 0.0
        self.story: deque[str] = deque(maxlen=60)
        self.after_event: Callable[[], None] = lambda: None

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._made += 1
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._made, call))

    def tell(self, what: str) -> None:
        self.story.append(f"{self.now_ms:6} {what}")

    def run_until(self, end_ms: int) -> None:
        heap = self._heap
        while heap and heap[0][0] <= end_ms:
            self.now_ms, _, call = heapq.heappop(heap)
            self.event_count += 1
            call()
            self.after_event()
        self.now_ms = end_ms

    # Network

    def cut(self, source: int, target: int) -> None:
        self._cuts.add((source, target))

    def heal(self) -> None:
        self._cuts.clear()
        self.corruption = 0.0

    def is_cut(self, source: int, target: int) -> bool:
        return (source, target) in self._cuts

    def delay(self) -> int:
        chance = self.rng.random()
        return 1 if chance < 0.6 else self.rng.randrange(1, 8 if chance < 0.98 else 120)


class Clock:
    """Of every process here: monotonic time never steps, wall time may."""

    def __init__(self, world: World) -> None:
        self._world = world

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self._world.now_ms + self._world.wall_step_ms

    def monotonic_ms(self) -> int:
        return 1_000_000 + self._world.now_ms


class ProcessSchedule:
    """Time of one process: nothing happens in it once it is dead, or while it is stopped."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.rng = world.rng
        self.is_alive = True
        self._stopped_until_ms = 0

    @property
    def now_ms(self) -> int:
        return self._world.now_ms

    @property
    def is_stopped(self) -> bool:
        return self._world.now_ms < self._stopped_until_ms

    def stop_until(self, time_ms: int) -> None:
        self._stopped_until_ms = time_ms

    def call_later(self, delay_ms: int, call: Callable[[], None]) -> None:
        def run() -> None:
            if not self.is_alive:
                return
            if self.is_stopped:
                self._world.call_later(self._stopped_until_ms - self._world.now_ms, run)
                return
            call()

        self._world.call_later(delay_ms, run)

    def post(self, call: Callable[[], None]) -> None:
        self.call_later(0, call)
