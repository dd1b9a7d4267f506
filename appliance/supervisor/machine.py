"""When to start, restart, stop and kill programs. Pure: time comes in, effects go out.

Rules:
- All programs start at once, in the order given; they stop one after the other, last first, so
  that the broker (first) outlives everything that uses it.
- A program that ends before it was ever ready ends the whole: nothing is left half started, and
  what it said on its way out is the reason to show.
- A program that was ready once is started again for ever, after a pause that doubles up to a
  bound and starts anew after a stretch of good health.
- A program that does not stop within its time is killed; that makes the end a failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

FIRST_PAUSE_MS = 500
LONGEST_PAUSE_MS = 30_000
HEALTHY_AFTER_MS = 60_000
STOP_TIMEOUT_MS = 60_000


@dataclass(frozen=True, slots=True)
class StartProgram:
    name: str

    def __str__(self) -> str:
        return f"start {self.name}"


@dataclass(frozen=True, slots=True)
class StopProgram:
    """Ask it to stop (SIGTERM)."""

    name: str

    def __str__(self) -> str:
        return f"stop {self.name}"


@dataclass(frozen=True, slots=True)
class KillProgram:
    name: str

    def __str__(self) -> str:
        return f"kill {self.name}"


@dataclass(frozen=True, slots=True)
class AnnounceReady:
    """Every program is ready; said after each time that this was not so."""

    def __str__(self) -> str:
        return "announce ready"


@dataclass(frozen=True, slots=True)
class AnnounceRestart:
    name: str
    status: int
    pause_ms: int

    def __str__(self) -> str:
        return f"announce that {self.name} ended ({self.status}), again in {self.pause_ms} ms"


@dataclass(frozen=True, slots=True)
class Finish:
    """Nothing runs any more. ``failure``: what made this end a failure."""

    failure: str | None

    def __str__(self) -> str:
        return f"finish, failure: {self.failure or 'none'}"


Effect = StartProgram | StopProgram | KillProgram | AnnounceReady | AnnounceRestart | Finish


@dataclass(slots=True)
class _Program:
    name: str
    is_running: bool = False
    is_ready: bool = False
    was_ready: bool = False
    ready_since_ms: int = 0
    start_at_ms: int | None = None
    """When to start again; only while it is not running."""
    kill_at_ms: int | None = None
    """When patience ends; only while it is being stopped."""
    failures: int = 0


@dataclass(slots=True)
class SupervisorMachine:
    """Feed it what happened; perform the effects it returns, in order."""

    names: Sequence[str]
    stop_timeout_ms: int = STOP_TIMEOUT_MS
    is_stopping: bool = False
    failure: str | None = None
    _is_finished: bool = False
    _is_announced: bool = False
    _programs: dict[str, _Program] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._programs = {name: _Program(name) for name in self.names}

    def on_start(self) -> list[Effect]:
        return [self._start(program) for program in self._programs.values()]

    def on_ready(self, name: str, now_ms: int) -> list[Effect]:
        """The program answers. Said once for each of its runs."""
        program = self._programs[name]
        if not program.is_running or program.is_ready:
            return []
        program.is_ready = program.was_ready = True
        program.ready_since_ms = now_ms
        if self.is_stopping or self._is_announced:
            return []
        if not all(other.is_ready for other in self._programs.values()):
            return []
        self._is_announced = True
        return [AnnounceReady()]

    def on_exited(self, name: str, status: int, now_ms: int) -> list[Effect]:
        """The program ended; a negative status is the signal that ended it."""
        program = self._programs[name]
        healthy_ms = now_ms - program.ready_since_ms if program.is_ready else 0
        program.is_running = program.is_ready = False
        program.kill_at_ms = None
        if self.is_stopping:
            return self._stop_next(now_ms)
        self._is_announced = False
        if not program.was_ready:
            self.failure = f"{name} ended before it was ready"
            return self._begin_stop(now_ms)
        program.failures = 0 if healthy_ms >= HEALTHY_AFTER_MS else program.failures
        pause_ms = min(FIRST_PAUSE_MS << min(program.failures, 16), LONGEST_PAUSE_MS)
        program.failures += 1
        program.start_at_ms = now_ms + pause_ms
        return [AnnounceRestart(name, status, pause_ms)]

    def on_stop_requested(self, now_ms: int) -> list[Effect]:
        return [] if self.is_stopping else self._begin_stop(now_ms)

    def on_tick(self, now_ms: int) -> list[Effect]:
        """Time has passed: start what has paused, kill what overstays."""
        effects: list[Effect] = []
        for program in self._programs.values():
            if program.start_at_ms is not None and program.start_at_ms <= now_ms:
                effects.append(self._start(program))
            if program.kill_at_ms is not None and program.kill_at_ms <= now_ms:
                program.kill_at_ms = None
                self.failure = self.failure or f"{program.name} did not stop and was killed"
                effects.append(KillProgram(program.name))
        return effects

    def next_tick_ms(self) -> int | None:
        """When ``on_tick`` next has something to do."""
        times = [
            at
            for program in self._programs.values()
            for at in (program.start_at_ms, program.kill_at_ms)
            if at is not None
        ]
        return min(times, default=None)

    def _start(self, program: _Program) -> StartProgram:
        program.start_at_ms = None
        program.is_running = True
        return StartProgram(program.name)

    def _begin_stop(self, now_ms: int) -> list[Effect]:
        self.is_stopping = True
        for program in self._programs.values():
            program.start_at_ms = None
        return self._stop_next(now_ms)

    def _stop_next(self, now_ms: int) -> list[Effect]:
        for name in reversed(self.names):
            program = self._programs[name]
            if program.is_running:
                if program.kill_at_ms is None:
                    program.kill_at_ms = now_ms + self.stop_timeout_ms
                    return [StopProgram(name)]
                return []
        if self._is_finished:
            return []
        self._is_finished = True
        return [Finish(self.failure)]
