"""Which replicas must acknowledge a record: the committed ISR, and changes that are not decided.

The leader proposes, the controller decides by compare-and-set on the partition epoch. Until the
leader *knows* the outcome it counts with the maximal ISR: the committed one and all that it has
proposed at this partition epoch, because any of them may be what the store holds when the leader
dies. An answer that was lost is no failure. Even a refusal proves nothing after an attempt in
doubt: it may come from a controller that was replaced meanwhile. Two things settle a doubt: a newer
partition epoch, or a proposal accepted at this one, after which no older attempt can succeed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from broker.model.ids import BrokerId


@dataclass(frozen=True, slots=True)
class CommittedIsr:
    """The store holds this ISR, as far as anybody here can have changed it."""

    isr: frozenset[BrokerId]


@dataclass(frozen=True, slots=True)
class PendingIsr:
    """``proposed`` may hold already. ``doubtful``: everything proposed at this partition epoch."""

    isr: frozenset[BrokerId]
    proposed: frozenset[BrokerId]
    doubtful: frozenset[BrokerId]
    is_in_flight: bool
    #: An attempt ended without an answer.
    is_in_doubt: bool


IsrState: TypeAlias = CommittedIsr | PendingIsr


class Isr:
    """See the module's docstring. At most one proposal is under way."""

    def __init__(self, isr: frozenset[BrokerId], partition_epoch: int) -> None:
        self.state: IsrState = CommittedIsr(isr)
        self.partition_epoch = partition_epoch

    @property
    def committed(self) -> frozenset[BrokerId]:
        return self.state.isr

    @property
    def maximal(self) -> frozenset[BrokerId]:
        state = self.state
        return state.isr | state.doubtful if isinstance(state, PendingIsr) else state.isr

    @property
    def is_in_flight(self) -> bool:
        return isinstance(self.state, PendingIsr) and self.state.is_in_flight

    def propose(self, wanted: frozenset[BrokerId]) -> bool:
        """Whether ``wanted`` is to be proposed now; it counts from here on then.

        In doubt the committed ISR is worth proposing, too: accepted, it settles the doubt.
        """
        state = self.state
        if isinstance(state, CommittedIsr):
            if wanted == state.isr:
                return False
            self.state = PendingIsr(state.isr, wanted, wanted, True, False)
            return True
        if state.is_in_flight:
            return False
        self.state = PendingIsr(state.isr, wanted, state.doubtful | wanted, True, state.is_in_doubt)
        return True

    def on_accepted(self, partition_epoch: int, isr: frozenset[BrokerId]) -> bool:
        """The store holds ``isr`` at ``partition_epoch``; gives whether that was news. From the
        answer to a proposal or from the cluster's image, whichever comes first."""
        if partition_epoch <= self.partition_epoch:
            return False
        self.partition_epoch = partition_epoch
        self.state = CommittedIsr(isr)
        return True

    def on_refused(self) -> None:
        """The controller did not write it: final, unless an earlier attempt is in doubt."""
        state = self.state
        if not isinstance(state, PendingIsr) or not state.is_in_flight:
            return
        if state.is_in_doubt:
            self._land(state, True)
        else:
            self.state = CommittedIsr(state.isr)

    def on_lost(self) -> None:
        """No answer, or one that leaves open what was written."""
        state = self.state
        if isinstance(state, PendingIsr) and state.is_in_flight:
            self._land(state, True)

    def _land(self, state: PendingIsr, is_in_doubt: bool) -> None:
        self.state = PendingIsr(state.isr, state.proposed, state.doubtful, False, is_in_doubt)
