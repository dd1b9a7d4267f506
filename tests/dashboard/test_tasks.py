"""What is kept in the web process begins again after a fault."""

import asyncio
import threading

import pytest

from dashboard import tasks
from tests.support.by_hand import ManualScheduler


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(tasks, "LAST_PAUSE_S", 0.002)


def test_a_thread_that_is_kept_begins_again_until_it_returns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun: list[str] = []
    is_done = threading.Event()

    def run() -> None:
        begun.append(threading.current_thread().name)
        if len(begun) < 3:
            raise RuntimeError("a fault of ours")
        is_done.set()

    tasks.keep_thread(run, "collector")
    assert is_done.wait(30)
    assert begun == ["collector"] * 3
    assert "collector failed, and begins again in " in caplog.text


def test_a_task_that_is_kept_begins_again_until_it_is_ended() -> None:
    async def look() -> int:
        begun = 0
        goes_on = asyncio.Event()

        async def work() -> None:
            nonlocal begun
            begun += 1
            if begun < 3:
                raise RuntimeError("a fault of ours")
            goes_on.set()
            await asyncio.Event().wait()

        task = tasks.keep(work, "permissions of sockets")
        await asyncio.wait_for(goes_on.wait(), 30)
        await tasks.end(task)
        assert task.cancelled()
        return begun

    assert asyncio.run(look()) == 3


def test_pauses_grow_to_a_bound_and_begin_anew_after_good_health(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    clock = ManualScheduler()
    pauses = tasks.Pauses("collector", clock)
    found = []
    for _ in range(8):
        pauses.on_begin()
        found.append(pauses.after(RuntimeError("a fault")))
    assert found == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    pauses.on_begin()
    clock.now_ms += tasks.STEADY_MS
    assert pauses.after(RuntimeError("a fault")) == 0.5
