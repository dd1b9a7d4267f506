"""Where logs begin and end before a reset, and what a time means in them: one answer a partition."""

from __future__ import annotations

from collections.abc import Sequence

from broker.model.ids import TopicPartition
from dashboard.cluster import KafkaFailure, OffsetView
from dashboard.gateway import Gateway, OffsetAt
from dashboard.resetting import LogAt, Target


def look_up_logs(
    gateway: Gateway, keys: Sequence[TopicPartition], target: Target
) -> dict[TopicPartition, LogAt | KafkaFailure]:
    """In the order of ``keys``; a failure is the first that the cluster gave for this partition."""
    answers = [gateway.offsets(keys, at) for at in (OffsetAt.EARLIEST, OffsetAt.LATEST)]
    if target.time_ms is not None:
        answers.append(gateway.offsets(keys, target.time_ms))
    return {key: _of_one([answer[key] for answer in answers]) for key in keys}


def _of_one(found: Sequence[OffsetView | KafkaFailure]) -> LogAt | KafkaFailure:
    offsets = []
    for view in found:
        if isinstance(view, KafkaFailure):
            return view
        offsets.append(view.offset)
    return LogAt(*offsets)
