"""Tasks that are kept and logged, turns of the loop, functions that call back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from broker.server import tasks
from broker.server.background import Threads
from broker.server.tasks import TaskGroup, Turn, called_back, until
from tests.broker.server.running import on_loop


@on_loop
async def test_a_task_that_fails_is_logged_with_its_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    group = TaskGroup(asyncio.get_running_loop())

    async def fail() -> None:
        raise RuntimeError("a fault of ours")

    group.spawn(fail(), "retention")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert "task retention failed" in caplog.text
    assert not group._tasks


@on_loop
async def test_tasks_are_ended_together() -> None:
    group = TaskGroup(asyncio.get_running_loop())
    ended: list[int] = []

    async def wait(number: int) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append(number)

    for number in range(3):
        group.spawn(wait(number), "wait")
    await asyncio.sleep(0)
    await group.cancel()
    assert sorted(ended) == [0, 1, 2]
    assert not group._tasks
    await group.cancel()


class Duty:
    """Fails so often; then it goes on."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.begun = 0
        self.goes_on = asyncio.Event()

    async def __call__(self) -> None:
        self.begun += 1
        if self.begun <= self.failures:
            raise RuntimeError(f"fault {self.begun}")
        self.goes_on.set()
        await asyncio.Event().wait()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "FIRST_PAUSE_SECONDS", 0.0001)
    monkeypatch.setattr(tasks, "LAST_PAUSE_SECONDS", 0.0005)


@pytest.mark.usefixtures("quick")
@on_loop
async def test_a_duty_that_fails_begins_again(caplog: pytest.LogCaptureFixture) -> None:
    lost: list[str] = []
    group = TaskGroup(asyncio.get_running_loop(), lost.append)
    duty = Duty(tasks.MAX_FAILURES - 1)
    group.keep(duty, "propose ISRs", is_vital=True)
    async with asyncio.timeout(30):
        await duty.goes_on.wait()
    await group.cancel()
    trouble = group.troubles["propose ISRs"]
    assert (trouble.failures, trouble.restarts) == (duty.failures, duty.failures)
    assert trouble.last_error == f"RuntimeError('fault {duty.failures}')"
    assert "task propose ISRs failed, and begins again in " in caplog.text
    assert lost == []


@pytest.mark.usefixtures("quick")
@on_loop
async def test_a_vital_duty_that_fails_again_and_again_is_lost_and_another_is_not() -> None:
    lost: list[str] = []
    group = TaskGroup(asyncio.get_running_loop(), lost.append)
    vital, other = Duty(1000), Duty(3 * tasks.MAX_FAILURES)
    group.keep(vital, "propose ISRs", is_vital=True)
    group.keep(other, "elect preferred leaders")
    async with asyncio.timeout(30):
        await other.goes_on.wait()
    await group.cancel()
    assert vital.begun == tasks.MAX_FAILURES
    assert lost == ["task propose ISRs failed 9 times in a row: RuntimeError('fault 9')"]


@pytest.mark.usefixtures("quick")
@on_loop
async def test_what_went_on_for_long_has_got_over_its_failures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "STEADY_SECONDS", 0.0)
    lost: list[str] = []
    group = TaskGroup(asyncio.get_running_loop(), lost.append)
    duty = Duty(2 * tasks.MAX_FAILURES)
    group.keep(duty, "propose ISRs", is_vital=True)
    async with asyncio.timeout(30):
        await duty.goes_on.wait()
    await group.cancel()
    assert lost == []


@on_loop
async def test_a_duty_that_returns_is_done() -> None:
    group = TaskGroup(asyncio.get_running_loop())
    begun: list[int] = []

    async def return_at_once() -> None:
        begun.append(1)

    group.keep(return_at_once, "watch broker 2")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (begun, group.troubles) == ([1], {})
    assert not group._tasks


@on_loop
async def test_one_part_of_a_timers_work_keeps_no_other_from_its() -> None:
    group = TaskGroup(asyncio.get_running_loop())
    done: list[int] = []

    def fail() -> None:
        raise OSError("disk")

    group.attempt(fail, "the tick of logs")
    group.attempt(lambda: done.append(1), "the tick of groups")
    assert done == [1]
    assert group.troubles["the tick of logs"].failures == 1


@on_loop
async def test_what_fails_on_the_loop_itself_is_counted() -> None:
    loop = asyncio.get_running_loop()
    group = TaskGroup(loop)
    loop.set_exception_handler(group.on_loop_error)
    loop.call_soon(lambda: 1 // 0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert "ZeroDivisionError" in group.troubles["callbacks of the loop"].last_error


@on_loop
async def test_failures_are_counted_under_so_many_names_at_most() -> None:
    group = TaskGroup(asyncio.get_running_loop())

    def fail() -> None:
        raise OSError("x" * 1000)

    for number in range(tasks.MAX_NAMES + 5):
        group.attempt(fail, f"part {number}")
    assert len(group.troubles) == tasks.MAX_NAMES + 1
    assert group.troubles[tasks.OTHERS].failures == 5
    assert len(group.troubles["part 0"].last_error) == tasks.MAX_ERROR_LENGTH


@on_loop
async def test_a_turn_ends_and_others_run_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "TURN_NS", 0)
    order: list[str] = []
    asyncio.get_running_loop().call_soon(order.append, "other")
    turn = Turn()
    assert turn.is_over
    await turn.pass_on()
    order.append("we")
    assert order == ["other", "we"]
    monkeypatch.setattr(tasks, "TURN_NS", 10**12)
    await turn.pass_on()
    assert not turn.is_over


@on_loop
async def test_a_function_that_calls_back_is_awaited() -> None:
    loop = asyncio.get_running_loop()

    def ask(value: int, done: Callable[[int], None]) -> None:
        loop.call_soon(done, value + 1)

    assert await called_back(ask, 41) == 42


@on_loop
async def test_an_answer_for_somebody_who_was_cancelled_is_dropped() -> None:
    kept: list[Callable[[int], None]] = []
    waiting = asyncio.ensure_future(called_back(kept.append))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    kept[0](1)


# Threads


@on_loop
async def test_results_and_errors_of_threads_come_back_on_the_loop() -> None:
    threads = Threads(asyncio.get_running_loop())
    loop_thread = threading.get_ident()
    came: list[tuple[object, object, int]] = []

    def then(result: object, error: Exception | None) -> None:
        came.append((result, type(error), threading.get_ident()))

    def fail() -> None:
        raise OSError("disk")

    for pool in (threads.flush, threads.disk, threads.read, threads.compute):
        pool(lambda: 1, then)
        pool(fail, then)
    await threads.idle()
    assert sorted(came, key=str) == sorted(
        4 * [(1, type(None), loop_thread), (None, OSError, loop_thread)], key=str
    )
    threads.close()


@on_loop
async def test_idle_waits_for_what_leads_to_more() -> None:
    threads = Threads(asyncio.get_running_loop())
    steps: list[int] = []

    def again(result: int | None, error: Exception | None) -> None:
        assert result is not None
        steps.append(result)
        if result < 5:
            threads.disk(lambda: result + 1, again)

    threads.compute(lambda: 0, again)
    await threads.idle()
    assert steps == [0, 1, 2, 3, 4, 5]
    threads.close()


@on_loop
async def test_a_fault_in_what_comes_back_is_no_work_under_way_for_ever() -> None:
    loop = asyncio.get_running_loop()
    threads = Threads(loop)
    faults: list[object] = []
    loop.set_exception_handler(lambda _, context: faults.append(context))

    def then(result: object, error: Exception | None) -> None:
        raise RuntimeError("a fault of ours")

    threads.disk(lambda: None, then)
    await threads.idle()
    assert faults
    threads.close()


@on_loop
async def test_a_call_gives_the_result_or_raises() -> None:
    threads = Threads(asyncio.get_running_loop())

    def fail() -> None:
        raise OSError("disk")

    assert await threads.call(lambda: 5) == 5
    with pytest.raises(OSError, match="disk"):
        await threads.call(fail)
    threads.close()


@on_loop
async def test_a_call_that_was_given_up_is_still_waited_for() -> None:
    """A stop cancels the task, but the thread goes on writing."""
    threads = Threads(asyncio.get_running_loop())
    may_end, has_ended = threading.Event(), threading.Event()

    def work() -> None:
        may_end.wait(20)
        has_ended.set()

    task = asyncio.ensure_future(threads.call(work))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    idle = asyncio.ensure_future(threads.idle())
    await asyncio.sleep(0.01)
    assert not idle.done()
    may_end.set()
    await idle
    assert has_ended.is_set()
    threads.close()


@on_loop
async def test_work_ends_with_the_event_or_by_itself() -> None:
    event = asyncio.Event()
    ended: list[str] = []

    async def work(how: str) -> None:
        try:
            if how == "fails":
                raise RuntimeError("a fault")
            if how == "hangs":
                await asyncio.Event().wait()
        finally:
            ended.append(how)

    await until(event, work("succeeds"))
    with pytest.raises(RuntimeError, match="a fault"):
        await until(event, work("fails"))
    for end in (event.set, None):
        task = asyncio.ensure_future(until(event, work("hangs")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if end is None:
            task.cancel()
        else:
            assert not task.done()
            end()
        await asyncio.wait((task,))
        await asyncio.sleep(0)
        assert task.cancelled() == (end is None)
        event.clear()
    assert ended == ["succeeds", "fails", "hangs", "hangs"]
