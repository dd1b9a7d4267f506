"""The supervisor's loop: performs what the machine decides, tells it what happened.

One thread, one selector: children's output, and a pipe that every signal writes to. SIGTERM,
SIGINT and SIGHUP begin the ordered stop; SIGCHLD only wakes the loop. Should this process die
without a word, the kernel closes the pipe that its children watch, and they stop by themselves.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import assert_never

from appliance.supervisor.machine import (
    AnnounceReady,
    AnnounceRestart,
    Effect,
    Finish,
    KillProgram,
    StartProgram,
    StopProgram,
    SupervisorMachine,
)
from appliance.supervisor.process import ChildProcess
from appliance.supervisor.programs import Program
from broker.clock import Clock

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
FAST_PROBE_MS = 50
SLOW_PROBE_MS = 500
FAST_PROBING_MS = 10_000
"""A starting program is asked often at first; a long recovery is not asked to death."""
IDLE_WAIT_MS = 5_000


class Supervisor:
    """Runs programs until it is told to stop. ``write_line`` gets every line of every child."""

    def __init__(
        self,
        programs: Sequence[Program],
        clock: Clock,
        write_line: Callable[[str, str], None],
        on_ready: Callable[[], None],
        on_program_ready: Callable[[str], None] = lambda name: None,
        on_restart: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._programs = {program.name: program for program in programs}
        self._machine = SupervisorMachine(list(self._programs))
        self._clock = clock
        self._write_line = write_line
        self._on_ready = on_ready
        self._on_program_ready = on_program_ready
        self._on_restart = on_restart
        self._children: dict[str, ChildProcess] = {}
        self._started_ms: dict[str, int] = {}
        self._unready: set[str] = set()
        self._selector = selectors.DefaultSelector()
        self._is_finished = False
        self._parent_read_fd, self._parent_write_fd = os.pipe()

    def run(self) -> str | None:
        """Returns when nothing runs any more: what went wrong, or None after a stop."""
        with self._signals():
            self._perform(self._machine.on_start())
            while not self._is_finished:
                self._wait()
                self._reap()
                self._probe()
                self._perform(self._machine.on_tick(self._clock.monotonic_ms()))
        os.close(self._parent_read_fd)
        os.close(self._parent_write_fd)
        return self._machine.failure

    # What happened

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        read_fd, write_fd = os.pipe()
        os.set_blocking(read_fd, False)
        os.set_blocking(write_fd, False)
        previous_wakeup = signal.set_wakeup_fd(write_fd)
        previous = {
            number: signal.signal(number, lambda *_: None)
            for number in (*STOP_SIGNALS, signal.SIGCHLD)
        }
        self._selector.register(read_fd, selectors.EVENT_READ, None)
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(previous_wakeup)
            self._selector.close()
            os.close(read_fd)
            os.close(write_fd)

    def _wait(self) -> None:
        for key, _ in self._selector.select(self._wait_ms() / 1000):
            if key.data is None:
                self._take_signals(key.fd)
            else:
                self._pass_output(key.data)

    def _wait_ms(self) -> int:
        now_ms = self._clock.monotonic_ms()
        waits = [IDLE_WAIT_MS]
        next_tick_ms = self._machine.next_tick_ms()
        if next_tick_ms is not None:
            waits.append(max(0, next_tick_ms - now_ms))
        for name in self._unready:
            is_young = now_ms - self._started_ms[name] < FAST_PROBING_MS
            waits.append(FAST_PROBE_MS if is_young else SLOW_PROBE_MS)
        return min(waits)

    def _take_signals(self, descriptor: int) -> None:
        with contextlib.suppress(BlockingIOError):
            for number in os.read(descriptor, 512):
                if number not in STOP_SIGNALS:
                    continue
                if self._machine.is_stopping:
                    still = ", ".join(self._children)
                    self._write_line("serve", f"already stopping, waiting for {still}")
                self._perform(self._machine.on_stop_requested(self._clock.monotonic_ms()))

    def _pass_output(self, child: ChildProcess) -> None:
        lines = child.read_lines()
        if lines is None:
            # End of output, or a grandchild holds it: either way the exit is what counts.
            self._selector.unregister(child.output)
            return
        for line in lines:
            self._write_line(child.name, line)

    def _reap(self) -> None:
        for name, child in list(self._children.items()):
            status = child.poll()
            if status is None:
                continue
            with contextlib.suppress(KeyError):
                self._selector.unregister(child.output)
            for line in child.last_lines():
                self._write_line(name, line)
            child.close()
            del self._children[name]
            self._unready.discard(name)
            self._perform(self._machine.on_exited(name, status, self._clock.monotonic_ms()))

    def _probe(self) -> None:
        for name in sorted(self._unready):
            if self._programs[name].is_ready():
                self._unready.discard(name)
                self._on_program_ready(name)
                self._perform(self._machine.on_ready(name, self._clock.monotonic_ms()))

    # What to do

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case StartProgram(name):
                    self._start(self._programs[name])
                case StopProgram(name):
                    self._write_line("serve", f"stopping {name}")
                    self._children[name].stop()
                case KillProgram(name):
                    self._write_line("serve", f"{name} does not stop: killing it")
                    self._children[name].kill()
                case AnnounceReady():
                    self._on_ready()
                case AnnounceRestart(name, status, pause_ms):
                    self._on_restart(name)
                    self._write_line(
                        "serve",
                        f"{name} ended with {describe_status(status)}; "
                        f"starting it again in {pause_ms / 1000:g} s",
                    )
                case Finish():
                    self._is_finished = True
                case _:
                    assert_never(effect)

    def _start(self, program: Program) -> None:
        child = ChildProcess(
            program.name, program.command, self._parent_read_fd, program.environment
        )
        self._children[program.name] = child
        self._started_ms[program.name] = self._clock.monotonic_ms()
        self._unready.add(program.name)
        self._selector.register(child.output, selectors.EVENT_READ, child)


def describe_status(status: int) -> str:
    """An exit status in words."""
    if status >= 0:
        return f"status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
