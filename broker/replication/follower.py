"""A partition's follower: what to fetch next, and what to do with the answer.

One fetch is under way at most. A fetch offset acknowledges, so with ``flush.messages=1`` nothing
is fetched before what was appended is on disk. Where the logs part the leader says; the follower
cuts, and asks again until its log is a prefix (KIP-101, KIP-279, KIP-595): never at the high
watermark, which may be behind what was committed.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.model.error_code import ErrorCode
from broker.model.errors import CorruptLogError
from broker.model.ids import BrokerId
from broker.model.leadership import LeaderAndIsr
from broker.replication.replica_fetch import (
    NO_ANSWER,
    Diverged,
    FetchAnswer,
    FetchRefused,
    ReplicaFetch,
)
from broker.replication.replica_log import ReplicaLog, visible_end
from broker.storage.append_info import AppendInfo


class FollowerResult(NamedTuple):
    """``appended`` asks for the work that an append may leave (``AppendInfo.rolled``, a flush).
    ``is_back_off``: ask again only after a while. ``damage``: why what came was not taken."""

    appended: AppendInfo | None = None
    is_back_off: bool = False
    damage: str = ""


class FollowerMachine:
    """See the module's docstring. One leader epoch of one partition on this broker."""

    def __init__(
        self, broker_id: BrokerId, state: LeaderAndIsr, log: ReplicaLog, is_flush_bound: bool
    ) -> None:
        self._broker_id = broker_id
        self._log = log
        self.is_flush_bound = is_flush_bound
        self.leader_id = state.leader_id
        self.leader_epoch = state.leader_epoch
        self._answer_number = NO_ANSWER
        self.fetch_under_way: ReplicaFetch | None = None
        #: As it told last; our own is bounded by our log.
        self.leader_high_watermark = 0

    @property
    def lag(self) -> int:
        """Committed records that are missing here, as far as the leader has told."""
        return max(0, self.leader_high_watermark - self._log.log_end_offset)

    def next_fetch(self, broker_epoch: int) -> ReplicaFetch | None:
        """The fetch to send now; None while one is under way, or the disk is behind."""
        log = self._log
        is_flushed = visible_end(log, self.is_flush_bound) >= log.log_end_offset
        if self.fetch_under_way is not None or not is_flushed:
            return None
        self.fetch_under_way = ReplicaFetch(
            self._broker_id,
            broker_epoch,
            self.leader_epoch,
            log.log_end_offset,
            log.latest_leader_epoch,
            self._answer_number,
        )
        return self.fetch_under_way

    def on_no_answer(self) -> None:
        self.fetch_under_way = None

    def on_answer(self, fetch: ReplicaFetch, answer: FetchAnswer, now_ms: int) -> FollowerResult:
        if fetch is not self.fetch_under_way:
            return FollowerResult()  # an answer to a fetch that was given up
        self.fetch_under_way = None
        verdict = answer.verdict
        if isinstance(verdict, FetchRefused):
            return self._on_refused(verdict.error, answer)
        self._answer_number = answer.number
        if isinstance(verdict, Diverged):
            self._cut(verdict)
            return FollowerResult()
        return self._append(answer, now_ms)

    def _on_refused(self, error: ErrorCode, answer: FetchAnswer) -> FollowerResult:
        if error is ErrorCode.OFFSET_OUT_OF_RANGE and (
            self._log.log_end_offset < answer.log_start_offset
        ):
            self._log.truncate_fully_and_start_at(answer.log_start_offset)
            return FollowerResult()
        return FollowerResult(is_back_off=True)

    def _cut(self, diverged: Diverged) -> None:
        """To where our log and the leader's can have parted at the latest."""
        log = self._log
        if diverged.leader_epoch < 0:
            log.truncate_to(log.log_start_offset)  # it has nothing as old as what we have
            return
        epoch, end_offset = log.end_offset_for_epoch(diverged.leader_epoch)
        if epoch == diverged.leader_epoch:
            end_offset = min(end_offset, diverged.end_offset)
        elif epoch < 0:
            end_offset = diverged.end_offset
        log.truncate_to(max(log.log_start_offset, min(end_offset, log.log_end_offset)))

    def _append(self, answer: FetchAnswer, now_ms: int) -> FollowerResult:
        log = self._log
        appended: AppendInfo | None = None
        if answer.data:
            try:
                appended = log.append_as_follower(answer.data, now_ms)
            except CorruptLogError as error:
                # Bytes in a socket can change under a leader that is being cut: fetch again.
                return FollowerResult(is_back_off=True, damage=str(error))
        self.leader_high_watermark = answer.high_watermark
        high_watermark = min(answer.high_watermark, log.log_end_offset)
        if high_watermark > log.high_watermark:
            log.set_high_watermark(high_watermark)
        if answer.log_start_offset > log.log_start_offset:
            log.set_log_start_offset(min(answer.log_start_offset, log.high_watermark))
        return FollowerResult(appended)
