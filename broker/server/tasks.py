"""The only place that makes asyncio tasks: it keeps them alive and logs how they end.

An *errand* (``spawn``) ends by itself; one that fails is logged and counted, and whoever sent it sends it again or
does without. A *duty* (``keep``) goes on while the broker runs: one that fails begins again, later each time. A
vital one that fails again and again ends the broker (``on_lost``), whose supervisor starts it anew: without it this
broker would lead what it cannot replicate, and nobody would know. Whoever cannot begin again, because what
failed has left its state half changed, says so by ``on_lost`` itself.

``Turn`` is how long work over many items may hold the loop before it lets others run.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from broker.clock import SystemClock

logger = logging.getLogger(__name__)

#: A request that comes amid long work waits for the rest of a turn; passing the loop on costs 0.02 ms.
TURN_NS: Final = 500_000
#: From a failure to the next beginning; twice as long each time, up to the last.
FIRST_PAUSE_SECONDS: Final = 0.1
LAST_PAUSE_SECONDS: Final = 30.0
#: What ran so long has got over the failures before.
STEADY_SECONDS: Final = 60.0
#: A vital duty that failed so often in a row does not begin again: 25 s after the first failure.
MAX_FAILURES: Final = 9
#: Names that failures are counted by; those of more are counted together.
MAX_NAMES: Final = 200
OTHERS: Final = "others"
#: Of an error that is told.
MAX_ERROR_LENGTH: Final = 200

Begin = Callable[[], Coroutine[object, object, None]]


@dataclass(slots=True)
class Trouble:
    """What became of one task, or of all with its name, since the start."""

    name: str
    failures: int = 0
    #: How often it has begun again.
    restarts: int = 0
    last_ms: int = 0
    last_error: str = ""


class TaskGroup:
    """Background tasks of one owner, ended together."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_lost: Callable[[str], None] = logger.critical,
    ) -> None:
        self._loop = loop
        #: A vital task is lost, and why.
        self._on_lost = on_lost
        self._tasks: set[asyncio.Task[None]] = set()
        self.troubles: dict[str, Trouble] = {}

    def spawn(self, coroutine: Coroutine[object, object, None], name: str) -> None:
        """An errand."""
        task = self._loop.create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def keep(self, begin: Begin, name: str, *, is_vital: bool = False) -> None:
        """A duty, until it returns."""
        self.spawn(self._kept(begin, name, is_vital), name)

    async def _kept(self, begin: Begin, name: str, is_vital: bool) -> None:
        failures = 0
        while True:
            began = self._loop.time()
            try:
                await begin()
            except Exception as error:
                if self._loop.time() - began >= STEADY_SECONDS:
                    failures = 0
                failures += 1
                trouble = self.note(name, error)
                if is_vital and failures >= MAX_FAILURES:
                    logger.error("task %s failed", name, exc_info=error)
                    self._on_lost(f"task {name} failed {failures} times in a row: {error!r}")
                    return
                pause = min(FIRST_PAUSE_SECONDS * 2 ** (failures - 1), LAST_PAUSE_SECONDS)
                logger.error(
                    "task %s failed, and begins again in %.1f s", name, pause, exc_info=error
                )
            else:
                return
            await asyncio.sleep(pause)
            trouble.restarts += 1

    def attempt(self, call: Callable[[], None], name: str) -> None:
        """Do it now: a part of a timer's work, whose failure must not keep the other parts from theirs."""
        try:
            call()
        except Exception as error:
            self.note(name, error)
            logger.error("%s failed", name, exc_info=error)

    def on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The loop's handler of exceptions: a callback failed, and nobody else hears of it."""
        error = context.get("exception")
        if isinstance(error, Exception):
            self.note("callbacks of the loop", error)
        loop.default_exception_handler(context)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.note(task.get_name(), error)
            logger.error("task %s failed", task.get_name(), exc_info=error)

    def note(self, name: str, error: BaseException) -> Trouble:
        """It failed, and somebody else sees to what comes next."""
        trouble = self.troubles.get(name)
        if trouble is None:
            if len(self.troubles) >= MAX_NAMES:
                name = OTHERS
            trouble = self.troubles.setdefault(name, Trouble(name))
        trouble.failures += 1
        trouble.last_ms = SystemClock().wall_ms()
        trouble.last_error = repr(error)[:MAX_ERROR_LENGTH]
        return trouble

    async def cancel(self) -> None:
        """Cancel what is left and wait for it."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)


class Turn:
    """A share of the loop, to be asked after each of many items::

    turn = Turn()
    for item in items:
        work(item)
        if turn.is_over:
            await turn.pass_on()
    """

    __slots__ = ("_ends_ns",)

    def __init__(self) -> None:
        self._ends_ns = time.perf_counter_ns() + TURN_NS

    @property
    def is_over(self) -> bool:
        return time.perf_counter_ns() >= self._ends_ns

    async def pass_on(self) -> None:
        """Let others run; then it is our turn again."""
        await asyncio.sleep(0)
        self._ends_ns = time.perf_counter_ns() + TURN_NS


async def until(event: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Does the work, or as much of it as comes before the event. Raises what the work raises."""
    doing = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait((doing, waiting), return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            doing.result()
    finally:
        doing.cancel()
        waiting.cancel()


async def called_back(ask: Callable[..., None], *arguments: Any) -> Any:
    """Await a function that takes its callback as the last argument."""
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def done(result: Any) -> None:
        if not future.done():
            future.set_result(result)

    ask(*arguments, done)
    return await future
