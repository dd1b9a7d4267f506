"""What a follower asks its leader for, and what the leader says to it: values, free of any wire."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from broker.model.error_code import ErrorCode
from broker.model.ids import BrokerId

#: In ``answer_number``: no answer of this leader was seen yet.
NO_ANSWER = 0


class ReplicaFetch(NamedTuple):
    """A fetch acknowledges everything below ``fetch_offset``.

    ``last_fetched_epoch`` is the leader epoch of the last batch below it (-1: the log is empty).
    ``answer_number`` is that of the last answer received from this leader in this leader epoch; on
    the wire it is the epoch of the fetch session, which only rises with an answer received.
    """

    replica_id: BrokerId
    replica_epoch: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    answer_number: int


class Accepted(NamedTuple):
    """The follower's log is a prefix of ours: send it what lies behind ``fetch_offset``."""

    fetch_offset: int


class Diverged(NamedTuple):
    """The logs part (KIP-595): ours holds ``leader_epoch`` up to ``end_offset``."""

    leader_epoch: int
    end_offset: int


class FetchRefused(NamedTuple):
    error: ErrorCode


FetchVerdict: TypeAlias = Accepted | Diverged | FetchRefused


class FetchAnswer:
    """``data`` are whole batches from the fetch offset on, unless ``verdict`` is another one."""

    __slots__ = ("data", "high_watermark", "leader_epoch", "log_start_offset", "number", "verdict")

    def __init__(
        self,
        leader_epoch: int,
        number: int,
        verdict: FetchVerdict,
        data: bytes | memoryview,
        high_watermark: int,
        log_start_offset: int,
    ) -> None:
        self.leader_epoch = leader_epoch
        self.number = number
        self.verdict = verdict
        self.data = data
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset
