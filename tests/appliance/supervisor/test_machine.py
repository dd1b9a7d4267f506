from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from appliance.supervisor.machine import (
    HEALTHY_AFTER_MS,
    LONGEST_PAUSE_MS,
    AnnounceReady,
    AnnounceRestart,
    Effect,
    Finish,
    KillProgram,
    StartProgram,
    StopProgram,
    SupervisorMachine,
)

Event = Callable[[SupervisorMachine], list[Effect]]


class Playbook:
    """A conversation: ``>>`` tells the machine what happened, ``<<`` is what it must answer."""

    def __init__(self, *names: str, **settings: int) -> None:
        self.machine = SupervisorMachine(names, **settings)
        self._answers: list[Effect] = []
        self.is_as_expected = True

    def __rshift__(self, event: Event) -> "Playbook":
        assert self._answers == [], f"not expected: {', '.join(map(str, self._answers))}"
        self._answers = event(self.machine)
        return self

    def __lshift__(self, effect: Effect) -> "Playbook":
        assert self._answers, f"expected: {effect}"
        found = self._answers.pop(0)
        assert found == effect, f"expected: {effect}; found: {found}"
        return self

    def __bool__(self) -> bool:
        assert self._answers == [], f"not expected: {', '.join(map(str, self._answers))}"
        return True


def started() -> Event:
    return lambda machine: machine.on_start()


def ready(name: str, at: int = 0) -> Event:
    return lambda machine: machine.on_ready(name, at)


def exited(name: str, at: int = 0, status: int = 1) -> Event:
    return lambda machine: machine.on_exited(name, status, at)


def stop_requested(at: int = 0) -> Event:
    return lambda machine: machine.on_stop_requested(at)


def tick(at: int) -> Event:
    return lambda machine: machine.on_tick(at)


def test_all_programs_start_at_once_and_readiness_is_announced_when_all_have_it() -> None:
    assert (
        Playbook("broker", "web")
        >> started() << StartProgram("broker") << StartProgram("web")
        >> ready("web")
        >> ready("broker") << AnnounceReady()
        >> ready("broker")
    )  # fmt: skip


def test_programs_stop_one_after_the_other_and_the_broker_last() -> None:
    assert (
        Playbook("broker", "web")
        >> started() << StartProgram("broker") << StartProgram("web")
        >> stop_requested(0) << StopProgram("web")
        >> stop_requested(5)
        >> exited("web", 10, 0) << StopProgram("broker")
        >> exited("broker", 20, 0) << Finish(None)
    )  # fmt: skip


def test_a_program_that_never_was_ready_ends_the_whole() -> None:
    assert (
        Playbook("broker", "web")
        >> started() << StartProgram("broker") << StartProgram("web")
        >> exited("broker", 100) << StopProgram("web")
        >> exited("web", 200, 0) << Finish("broker ended before it was ready")
    )  # fmt: skip


def test_a_program_that_was_ready_is_started_again_after_a_pause() -> None:
    assert (
        Playbook("broker")
        >> started() << StartProgram("broker")
        >> ready("broker", 0) << AnnounceReady()
        >> exited("broker", 1000, -9) << AnnounceRestart("broker", -9, 500)
        >> tick(1499)
        >> tick(1500) << StartProgram("broker")
        >> ready("broker", 1600) << AnnounceReady()
    )  # fmt: skip


def test_pauses_double_up_to_a_bound_and_start_anew_after_good_health() -> None:
    machine = SupervisorMachine(["broker"])
    machine.on_start()
    machine.on_ready("broker", 0)
    now_ms, pauses = 0, []
    for _ in range(9):
        (announced,) = machine.on_exited("broker", 1, now_ms)
        assert isinstance(announced, AnnounceRestart)
        pauses.append(announced.pause_ms)
        now_ms += announced.pause_ms
        assert machine.on_tick(now_ms) == [StartProgram("broker")]
    assert pauses == [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, LONGEST_PAUSE_MS]
    machine.on_ready("broker", now_ms)
    now_ms += HEALTHY_AFTER_MS
    assert machine.on_exited("broker", 1, now_ms) == [AnnounceRestart("broker", 1, 500)]


def test_a_restart_that_fails_before_it_is_ready_is_tried_on() -> None:
    assert (
        Playbook("broker")
        >> started() << StartProgram("broker")
        >> ready("broker", 0) << AnnounceReady()
        >> exited("broker", 0) << AnnounceRestart("broker", 1, 500)
        >> tick(500) << StartProgram("broker")
        >> exited("broker", 600) << AnnounceRestart("broker", 1, 1000)
    )  # fmt: skip


def test_what_does_not_stop_is_killed_and_that_is_a_failure() -> None:
    assert (
        Playbook("broker", stop_timeout_ms=60_000)
        >> started() << StartProgram("broker")
        >> stop_requested(0) << StopProgram("broker")
        >> tick(59_999)
        >> tick(60_000) << KillProgram("broker")
        >> tick(60_001)
        >> exited("broker", 60_010, -9) << Finish("broker did not stop and was killed")
    )  # fmt: skip


def test_a_stop_during_a_pause_starts_nothing_again() -> None:
    assert (
        Playbook("broker")
        >> started() << StartProgram("broker")
        >> ready("broker", 0) << AnnounceReady()
        >> exited("broker", 0) << AnnounceRestart("broker", 1, 500)
        >> stop_requested(100) << Finish(None)
        >> tick(1000)
    )  # fmt: skip


def test_the_machine_tells_when_it_has_something_to_do() -> None:
    machine = SupervisorMachine(["broker"], stop_timeout_ms=7)
    machine.on_start()
    assert machine.next_tick_ms() is None
    machine.on_stop_requested(10)
    assert machine.next_tick_ms() == 17


def test_a_pause_ends_with_the_failure_of_another_program() -> None:
    assert (
        Playbook("broker", "web")
        >> started() << StartProgram("broker") << StartProgram("web")
        >> ready("broker", 0)
        >> exited("broker", 0) << AnnounceRestart("broker", 1, 500)
        >> exited("web", 0) << Finish("web ended before it was ready")
        >> tick(500)
    )  # fmt: skip


NAMES = ("broker", "web", "worker")
EVENTS = st.lists(
    st.tuples(st.sampled_from(["ready", "exited", "stop", "tick"]), st.sampled_from(NAMES)),
    max_size=40,
)


@given(EVENTS, st.integers(0, 70_000))
def test_whatever_happens_every_start_has_one_end(
    events: list[tuple[str, str]], step_ms: int
) -> None:
    machine, running, now_ms, finished = SupervisorMachine(NAMES), set[str](), 0, False

    def perform(effects: list[Effect]) -> None:
        nonlocal finished
        for effect in effects:
            assert not finished, "an effect after the end"
            if isinstance(effect, StartProgram):
                assert effect.name not in running, "started twice"
                running.add(effect.name)
            elif isinstance(effect, StopProgram | KillProgram):
                assert effect.name in running, "what does not run is stopped"
            elif isinstance(effect, Finish):
                assert not running, "finished while something runs"
                finished = True

    perform(machine.on_start())
    for kind, name in events:
        now_ms += step_ms
        if kind == "ready":
            perform(machine.on_ready(name, now_ms))
        elif kind == "stop":
            perform(machine.on_stop_requested(now_ms))
        elif kind == "tick":
            perform(machine.on_tick(now_ms))
        elif name in running:
            running.remove(name)
            perform(machine.on_exited(name, 1, now_ms))
    perform(machine.on_stop_requested(now_ms))
    for name in list(running):
        running.discard(name)
        perform(machine.on_exited(name, 0, now_ms))
    assert finished
