"""Faults that wait for transactions, besides those that wait for ISR changes."""

from __future__ import annotations

from broker.model.ids import BrokerId
from tests.simulation.faults import Faults


class TransactionFaults(Faults):
    _next_trap_ms = 0

    def on_markers(self, coordinator_id: BrokerId) -> tuple[int, bool]:
        """How late a request with markers is to arrive, and whether its answer is lost.

        Late is worse than lost: the coordinator repeats it, or another one does, and the first copy comes
        when the producer has gone on.
        """
        world, rng = self._world, self._rng
        if self._is_over or world.now_ms < self._next_trap_ms or rng.random() > 0.15:
            return 0, False
        world.fault_count += 1
        delay_ms = rng.choice((0, 0, rng.randrange(200, 3000)))
        is_answer_lost = rng.random() < 0.6
        self._next_trap_ms = world.now_ms + 1000
        end = rng.choice((self._kill, self._stop, self._isolate, self._expire, None))
        world.tell(
            f"fault: markers of {coordinator_id} late {delay_ms} ms, answer lost {is_answer_lost}, "
            f"then {'nothing' if end is None else end.__name__[1:]}"
        )
        if end is not None:
            world.call_later(
                rng.randrange(1, 200), lambda: None if self._is_over else end(coordinator_id)
            )
        return delay_ms, is_answer_lost

    def _victim(self) -> BrokerId:
        if self._rng.random() < 0.5:
            leaders = self._cluster.leaders(self._rng.choice(self._cluster.topics))
            if leaders:
                return self._rng.choice(leaders).broker_id
        return super()._victim()
