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
