"""What is evidence that a broker's process is dead, and how it comes back."""

from __future__ import annotations

from itertools import pairwise

from broker.metadata.fencing import EVIDENCE_MS, LAST_PROBE_MS, Fencing, Verdict
from broker.metadata.image import BrokerImage
from broker.model.ids import BrokerId

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


def fencing(**epochs: int) -> Fencing:
    made = Fencing(ONE)
    numbers = {ONE: 101, TWO: 102, THREE: 103} | {
        BrokerId(int(k[1:])): v for k, v in epochs.items()
    }
    made.on_seen({b: BrokerImage(b, epoch, ()) for b, epoch in numbers.items()})
    return made


def test_the_controller_and_another_one_must_have_been_refused() -> None:
    made = fencing()
    assert made.on_refusal(THREE, TWO, 102, 0) is Verdict.PROBE
    assert set(made.counted()) == {ONE, TWO, THREE}
    assert made.on_refusal(ONE, TWO, 102, 1) is Verdict.FENCE
    assert set(made.counted()) == {ONE, THREE}
    assert made.on_refusal(THREE, TWO, 102, 2) is Verdict.NOTHING


def test_the_controller_alone_is_not_enough() -> None:
    made = fencing()
    assert made.on_refusal(ONE, TWO, 102, 0) is Verdict.NOTHING
    assert made.on_refusal(ONE, TWO, 102, 1) is Verdict.NOTHING
    assert made.on_refusal(THREE, TWO, 102, 2) is Verdict.FENCE


def test_evidence_ages_and_an_answer_ends_it() -> None:
    made = fencing()
    made.on_refusal(THREE, TWO, 102, 0)
    assert made.on_refusal(ONE, TWO, 102, EVIDENCE_MS + 1) is Verdict.NOTHING
    assert not made.on_answer(TWO)
    assert made.on_refusal(THREE, TWO, 102, EVIDENCE_MS + 2) is Verdict.PROBE


def test_another_registration_is_not_meant_nor_the_suspect_heard() -> None:
    made = fencing()
    for observer, suspect, epoch in ((THREE, TWO, 99), (THREE, BrokerId(7), 1), (TWO, TWO, 102)):
        assert made.on_refusal(observer, suspect, epoch, 0) is Verdict.NOTHING
    assert made.on_refusal(THREE, ONE, 101, 0) is Verdict.NOTHING


def test_a_new_registration_is_not_fenced() -> None:
    made = fencing()
    made.on_refusal(THREE, TWO, 102, 0)
    made.on_refusal(ONE, TWO, 102, 0)
    made.on_seen({TWO: BrokerImage(TWO, 202, ())})
    assert set(made.counted()) == {TWO}
    assert made.due_probes(1 << 40) == []


def test_probes_come_ever_more_slowly_up_to_a_bound() -> None:
    made = fencing()
    made.on_refusal(THREE, TWO, 102, 0)
    made.on_refusal(ONE, TWO, 102, 0)
    times = [now_ms for now_ms in range(0, 400_000, 100) if made.due_probes(now_ms)]
    gaps = [after - before for before, after in pairwise(times)]
    assert times[0] == 1000
    assert gaps[:6] == [2000, 4000, 8000, 16_000, 32_000, LAST_PROBE_MS]
    assert set(gaps[6:]) == {LAST_PROBE_MS}
    assert made.on_answer(TWO)
    assert set(made.counted()) == {ONE, TWO, THREE}


def test_one_that_leaves_does_not_count_and_is_not_probed() -> None:
    made = fencing()
    assert not made.on_leaving(TWO, 99)
    assert made.on_leaving(TWO, 102)
    assert not made.on_leaving(TWO, 102)
    assert set(made.counted()) == {ONE, THREE}
    assert made.due_probes(1 << 50) == []
    assert not made.on_answer(TWO)
    assert set(made.counted()) == {ONE, THREE}
