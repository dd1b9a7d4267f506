"""What a child does for a page: a scan, one record with its neighbours, the check of an expression."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Final

from broker.clock import Clock
from broker.model.ids import TopicPartition
from dashboard.cluster import Record
from dashboard.expressions import EvaluationError, Expression
from dashboard.gateway import Gateway, RecordReader
from dashboard.scan import rendering
from dashboard.scan.answers import Progress, Write
from dashboard.scan.matching import Matcher
from dashboard.scan.places import spans
from dashboard.scan.requests import Bounds, CheckRequest, Range, RecordRequest, ScanRequest, Wanted
from dashboard.scan.walk import BoundReached, Walk

LIBRARY_PROPERTIES: Final[dict[str, Any]] = {
    "group.id": "odradek-dashboard",
    # A window's end must not wait for records that may never come.
    "fetch.wait.max.ms": 10,
    "fetch.queue.backoff.ms": 10,
    "fetch.error.backoff.ms": 100,
    # The largest record that a broker can hold has to come through.
    "receive.message.max.bytes": 2_147_483_647,
    "queued.max.messages.kbytes": 32_768,
}
FIRST_FILTERED: Final = 512
FIRST_ALL: Final = 2_048
MAX_SAMPLES: Final = 20
RECORD_SECONDS: Final = 60


def open_reader(gateway: Gateway, topic: str) -> RecordReader:
    return gateway.reader({TopicPartition(topic, 0): 0}, read_committed=True, **LIBRARY_PROPERTIES)


def new_walk(
    gateway: Gateway, chosen: Range, bounds: Bounds, wanted: Wanted, rows: int, clock: Clock
) -> Walk:
    walked, _ = spans(gateway, chosen)
    partitions = sum(low < high for low, high in walked.values()) or 1
    if wanted.is_everything:
        first = min(rows, 2 * rows // partitions + 1)
    else:
        first = min(FIRST_FILTERED, FIRST_ALL // partitions + 1)
    return Walk(chosen.topic, walked, chosen.way, bounds, clock, first_window=max(2, first))


def scan(request: ScanRequest, gateway: Gateway, write: Write, clock: Clock) -> dict[str, Any]:
    matcher = Matcher(request.wanted, request.range)
    walk = new_walk(gateway, request.range, request.bounds, request.wanted, request.rows, clock)
    progress = Progress(write, walk, matcher, clock)
    reason = "end"
    start = {str(key): at for key, at in walk.positions.items()}
    write({"start": start, "progress": progress.figures()})
    if walk.total == 0:
        # Nothing to be read: no connection is made for it.
        return {"reason": reason, "progress": progress.figures()}
    samples = 0
    with open_reader(gateway, request.range.topic) as reader:
        try:
            for record in walk.records(reader):
                progress.maybe_say()
                if record is None:
                    continue
                if samples < MAX_SAMPLES and (sample := rendering.sample(record)) is not None:
                    samples += 1
                    write({"sample": sample})
                if not matcher.matches(record):
                    continue
                progress.matched_count += 1
                write({"row": rendering.row(record, request.view)})
                if progress.matched_count >= request.rows:
                    reason = "full" if walk.passed < walk.total else "end"
                    break
        except BoundReached as bound:
            reason = str(bound)
    return {"reason": reason, "progress": progress.figures()}


def one_record(
    request: RecordRequest, gateway: Gateway, write: Write, clock: Clock
) -> dict[str, Any]:
    chosen = Range(request.topic, (request.partition,))
    _, held = spans(gateway, chosen)
    low, high = held[request.partition]
    answer: dict[str, Any] = {"low": str(low), "high": str(high), "before": None, "after": None}
    if low >= high:
        return answer
    bounds = Bounds(records=2, seconds=RECORD_SECONDS)
    at = min(max(request.offset, low), high)

    def few(way: Any, span: tuple[int, int], count: int) -> list[Record]:
        walk = Walk(
            request.topic, {request.partition: span}, way, bounds, clock, first_window=count
        )
        found = (record for record in walk.records(reader) if record is not None)
        records: list[Record] = []
        try:
            records.extend(itertools.islice(found, count))
        except BoundReached as bound:
            if str(bound) == "seconds":
                raise
        return records

    with open_reader(gateway, request.topic) as reader:
        if request.save_part:
            following, preceding = few("forward", (at, min(at + 1, high)), 1), []
        else:
            following, preceding = few("forward", (at, high), 2), few("backward", (low, at), 1)
    if following and following[0].offset == request.offset:
        record = following.pop(0)
        if request.save_part:
            data = record.key if request.save_part == "key" else record.value
            if data is not None:
                Path(request.save_path).write_bytes(data)
            answer["saved_bytes"] = None if data is None else len(data)
        else:
            write({"row": rendering.row(record, request.view, request.cut)})
    answer["before"] = str(preceding[0].offset) if preceding else None
    answer["after"] = str(following[0].offset) if following else None
    return answer


def check(request: CheckRequest) -> dict[str, Any]:
    expression = Expression(request.expression)
    matched = errors = 0
    first_error = ""
    for sample in request.samples:
        try:
            matched += expression.matches(rendering.from_sample(sample))
        except EvaluationError as error:
            errors += 1
            first_error = first_error or error.reason
    return {
        "matched": matched,
        "errors": errors,
        "first_error": first_error,
        "sample_count": len(request.samples),
    }
