"""From a range as people choose it to the offsets that a walk is made of."""

from __future__ import annotations

from broker.model.ids import TopicPartition
from dashboard.cluster import KafkaFailure, TopicView
from dashboard.gateway import Gateway, OffsetAt
from dashboard.scan.requests import Range

Spans = dict[int, tuple[int, int]]


class RangeError(ValueError):
    """What is wrong with a range, for the person who chose it."""


def spans(gateway: Gateway, chosen: Range) -> tuple[Spans, Spans]:
    """(what to walk through, what each partition holds): from offset, to offset (exclusive).

    Ends are the last stable offsets: a scan reads what is committed.
    """
    keys = _partitions(gateway, chosen)
    starts = gateway.offsets(keys, OffsetAt.EARLIEST)
    ends = gateway.offsets(keys, OffsetAt.LATEST, read_committed=True)
    held: Spans = {}
    for key in keys:
        start, end = starts[key], ends[key]
        for answer in (start, end):
            if isinstance(answer, KafkaFailure):
                if chosen.partitions:
                    raise answer
                break
        else:
            held[key.partition] = (start.offset, end.offset)  # type: ignore[union-attr] # no failure
    if keys and not held:
        raise KafkaFailure("LEADER_NOT_AVAILABLE", "no partition of this topic can be read now")
    return _walked(gateway, chosen, held), held


def _partitions(gateway: Gateway, chosen: Range) -> list[TopicPartition]:
    found = gateway.topics([chosen.topic])[chosen.topic]
    if isinstance(found, KafkaFailure):
        raise found
    assert isinstance(found, TopicView)
    keys = found.keys
    if chosen.partitions:
        wanted = set(chosen.partitions)
        if missing := wanted - {key.partition for key in keys}:
            raise RangeError(f"{chosen.topic} has no partition {min(missing)}")
        keys = [key for key in keys if key.partition in wanted]
    return keys


def _walked(gateway: Gateway, chosen: Range, held: Spans) -> Spans:
    held = _between_times(gateway, chosen, held)
    if chosen.cursor is not None:
        # A partition that is new since the cursor was made is walked as a whole, or not yet.
        new = {"backward": 0, "forward": 1}[chosen.way]
        at = {
            partition: chosen.cursor.get(partition, span[new ^ 1])
            for partition, span in held.items()
        }
    elif chosen.start == "offset":
        at = dict.fromkeys(held, chosen.start_value)
    elif chosen.start == "last":
        at = {partition: end - chosen.start_value for partition, (_, end) in held.items()}
    elif chosen.start == "time":
        at = _at_time(gateway, chosen.topic, held, chosen.start_value)
    else:
        return dict(held)
    walked = {}
    for partition, (start, end) in held.items():
        middle = min(max(at[partition], start), end)
        walked[partition] = (start, middle) if chosen.way == "backward" else (middle, end)
    return walked


def _between_times(gateway: Gateway, chosen: Range, held: Spans) -> Spans:
    """The part of each partition that the chosen times allow, found by its time index."""
    lows = {partition: start for partition, (start, _) in held.items()}
    highs = {partition: end for partition, (_, end) in held.items()}
    if chosen.since_ms is not None:
        lows = _at_time(gateway, chosen.topic, held, chosen.since_ms)
    if chosen.until_ms is not None and not chosen.reads_to_end:
        highs = _at_time(gateway, chosen.topic, held, chosen.until_ms)
    between = {}
    for partition, (start, end) in held.items():
        low = min(max(lows[partition], start), end)
        between[partition] = (low, min(max(highs[partition], low), end))
    return between


def _at_time(gateway: Gateway, topic: str, held: Spans, time_ms: int) -> dict[int, int]:
    """The first offset stamped then or later, the end where there is none. Raises KafkaFailure."""
    keys = [TopicPartition(topic, partition) for partition in held]
    found = gateway.offsets(keys, time_ms) if keys else {}
    at = {}
    for key in keys:
        answer = found[key]
        if isinstance(answer, KafkaFailure):
            raise answer
        at[key.partition] = answer.offset if answer.offset >= 0 else held[key.partition][1]
    return at
