"""Conversations with the machine: what was seen, what it does, in order."""

from collections.abc import Callable, Sequence

import pytest

from dashboard.alerting.machine import (
    FLAP_CLEAR_MS,
    GAP_MS,
    MAX_OPEN,
    OVERFLOW,
    Level,
    Observed,
    Policy,
    Reading,
    RuleMachine,
)

MINUTE = 60_000
HOUR = 3_600_000


def policy(for_ms: int = 5 * MINUTE, clear_ms: int = MINUTE, repeat_ms: int = HOUR) -> Policy:
    return Policy(for_ms, clear_ms, repeat_ms)


class Playbook:
    """`see(at, bad=...)` is one tick; what it did stands in `did`."""

    def __init__(self, rules: Policy) -> None:
        self.machine = RuleMachine(rules)
        self.did: list[str] = []

    def see(
        self,
        at_ms: int,
        *bad: str,
        between: Sequence[str] = (),
        unknown: Sequence[str] = (),
        is_silenced: Callable[[str], bool] = lambda target: False,
    ) -> "Playbook":
        readings = [Reading(target, Level.BAD, f"{target} is bad") for target in bad]
        readings += [Reading(target, Level.BETWEEN, "so so") for target in between]
        readings += [Reading(target, Level.UNKNOWN, "") for target in unknown]
        self._note(self.machine.on_tick(Observed(at_ms, readings), at_ms, is_silenced))
        return self

    def see_nothing(self, at_ms: int) -> "Playbook":
        self._note(self.machine.on_tick(None, at_ms))
        return self

    def _note(self, effects: Sequence[object]) -> None:
        self.did += [str(effect) for effect in effects]


def test_what_is_bad_for_long_enough_fires_and_is_told_once() -> None:
    play = Playbook(policy())
    for minute in range(8):
        play.see(minute * MINUTE, "g")

    assert play.did == ["begin g", "fire g", "tell g firing"]


def test_what_is_over_in_time_never_fires() -> None:
    play = Playbook(policy()).see(0, "g").see(4 * MINUTE, "g").see(5 * MINUTE)

    assert play.did == ["begin g", "withdraw g"]


def test_a_break_starts_the_count_anew() -> None:
    play = Playbook(policy()).see(0, "g").see(3 * MINUTE).see(4 * MINUTE, "g").see(6 * MINUTE, "g")

    assert play.did == ["begin g", "withdraw g", "begin g"]


def test_one_look_judged_many_times_is_one_look() -> None:
    play = Playbook(policy())
    look = Observed(0, [Reading("g", Level.BAD, "bad")])
    for now_ms in range(0, 10 * MINUTE, MINUTE):
        play._note(play.machine.on_tick(look, now_ms))

    assert play.did == ["begin g"]


def test_it_is_resolved_after_it_was_good_for_long_enough() -> None:
    play = Playbook(policy(for_ms=0)).see(0, "g").see(1000).see(30_000, "g").see(40_000)
    play.see(40_000 + MINUTE - 1)
    assert play.did == ["begin g", "fire g", "tell g firing"]

    play.see(40_000 + MINUTE)
    assert play.did[3:] == ["resolve g", "tell g resolved"]


def test_between_the_thresholds_nothing_changes() -> None:
    play = Playbook(policy(for_ms=0, clear_ms=0)).see(0, between=["g"]).see(1, "g")
    play.see(2, between=["g"]).see(3, between=["g"])
    assert play.did == ["begin g", "fire g", "tell g firing"]

    play.see(4)
    assert play.did[3:] == ["resolve g", "tell g resolved"]


def test_what_is_not_bad_enough_any_more_does_not_fire() -> None:
    play = Playbook(policy()).see(0, "g").see(5 * MINUTE, between=["g"])

    assert play.did == ["begin g", "withdraw g"]


def test_what_cannot_be_seen_neither_fires_nor_resolves() -> None:
    play = Playbook(policy(for_ms=MINUTE, clear_ms=0)).see(0, "g", "h").see(MINUTE, "g")
    play.see_nothing(2 * MINUTE).see(3 * MINUTE, unknown=["g"])

    assert play.did == ["begin g", "begin h", "fire g", "withdraw h", "tell g firing"]


def test_after_a_gap_without_looks_the_count_starts_anew() -> None:
    play = Playbook(policy()).see(0, "g").see_nothing(MINUTE).see(GAP_MS + MINUTE, "g")
    assert play.did == ["begin g"]

    play.see(GAP_MS + 6 * MINUTE, "g")
    assert play.did == ["begin g"]  # another gap
    for minute in range(1, 6):
        play.see(GAP_MS + (6 + minute) * MINUTE, "g")
    assert play.did == ["begin g", "fire g", "tell g firing"]


def test_a_source_that_knows_since_when_is_believed() -> None:
    machine = RuleMachine(policy(for_ms=MINUTE))
    reading = Reading("broker", Level.BAD, "silent", since_ms=10_000)

    effects = machine.on_tick(Observed(70_000, [reading]), 70_000)

    assert [str(effect) for effect in effects] == [
        "begin broker", "fire broker", "tell broker firing",
    ]  # fmt: skip
    assert machine.alerts["broker"].since_ms == 10_000


def test_it_is_told_again_every_hour_while_it_lasts() -> None:
    play = Playbook(policy(for_ms=0))
    for minute in range(0, 151):
        play.see(minute * MINUTE, "g")

    assert play.did == [
        "begin g", "fire g", "tell g firing", "tell g repeated", "tell g repeated",
    ]  # fmt: skip


def test_told_once_when_so_configured() -> None:
    play = Playbook(policy(for_ms=0, repeat_ms=0)).see(0, "g").see(100 * HOUR, "g")

    assert play.did == ["begin g", "fire g", "tell g firing"]


def test_a_silenced_alert_fires_untold_and_its_end_is_not_told_either() -> None:
    def always(target: str) -> bool:
        return True

    play = Playbook(policy(for_ms=0, clear_ms=0)).see(0, "g", is_silenced=always)
    play.see(1, is_silenced=always)

    assert play.did == ["begin g", "fire g", "resolve g"]


def test_what_still_fires_when_a_silence_ends_is_told_then() -> None:
    play = Playbook(policy(for_ms=0)).see(0, "g", is_silenced=lambda target: target == "g")
    play.see(1, "g")

    assert play.did == ["begin g", "fire g", "tell g firing"]


def test_the_end_of_what_was_told_is_told_in_a_silence() -> None:
    play = Playbook(policy(for_ms=0, clear_ms=0)).see(0, "g")
    play.see(1, is_silenced=lambda target: True)

    assert play.did[3:] == ["resolve g", "tell g resolved"]


def test_a_flapping_target_has_to_be_good_for_longer() -> None:
    play = Playbook(policy(for_ms=0, clear_ms=0))
    play.machine.recently_fired = {"g": [1000, 2000, 3000]}
    play.see(4000, "g")
    assert play.machine.alerts["g"].is_flapping

    for at_ms in range(5000, 100_000, 1000):
        play.see(at_ms, *(["g"] if at_ms % 2000 else []))
    assert play.did == ["begin g", "fire g", "tell g firing"]

    play.see(200_000).see(200_000 + FLAP_CLEAR_MS)
    assert play.did[3:] == ["resolve g", "tell g resolved"]


def test_firings_of_long_ago_do_not_count_as_flapping() -> None:
    play = Playbook(policy(for_ms=0, clear_ms=0))
    play.machine.recently_fired = {"g": [1000, 2000, 3000]}

    play.see(2 * HOUR, "g")

    assert not play.machine.alerts["g"].is_flapping


def test_more_targets_than_the_bound_are_counted_in_one_alert() -> None:
    names = [f"t{number}" for number in range(MAX_OPEN + 7)]
    play = Playbook(policy(for_ms=0, clear_ms=0)).see(0, *names)

    assert len(play.machine.alerts) == MAX_OPEN + 1
    assert play.machine.alerts[OVERFLOW].value == 7

    play.see(1, *names[:3])
    assert set(play.machine.alerts) == set(names[:3])


def test_a_rule_that_is_switched_off_ends_what_it_had_open() -> None:
    play = Playbook(policy(for_ms=MINUTE)).see(0, "g").see(MINUTE, "g", "h")
    did = [str(effect) for effect in play.machine.on_switched_off("off")]

    assert sorted(did) == ["resolve g", "tell g resolved", "withdraw h"]
    assert play.machine.alerts == {}


@pytest.mark.parametrize("step_ms", [-HOUR, HOUR * 24 * 365])
def test_a_clock_that_steps_does_no_harm(step_ms: int) -> None:
    play = Playbook(policy()).see(10 * HOUR, "g").see(10 * HOUR + step_ms, "g")

    assert play.did == ["begin g"]
