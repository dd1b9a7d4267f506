"""The log against its plain twin, in random order, over stops, kills and cold pages."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.model.errors import KafkaError
from broker.storage.cold import ColdRead
from broker.storage.log import RetentionOutcome
from tests.broker.storage.build import (
    NOW_MS,
    append,
    batch,
    config,
    content,
    flush,
    new_log,
    read,
    reopen,
)
from tests.broker.storage.check import check_indexes
from tests.property.reference_log import ReferenceLog
from tests.support.faulty_filesystem import FaultyFileSystem

Answer = TypeVar("Answer")


def warm(look_up: Callable[[], Answer | ColdRead]) -> Answer:
    while isinstance(found := look_up(), ColdRead):
        found.pull()
    return found


class LogMachine(RuleBasedStateMachine):
    @initialize(
        segment_bytes=st.integers(800, 4000),
        interval=st.sampled_from((0, 200, 4096)),
        index_bytes=st.sampled_from((60, 10_000)),
        cold=st.sampled_from((0.0, 0.2)),
        seed=st.integers(0, 1000),
    )
    def begin(
        self, segment_bytes: int, interval: int, index_bytes: int, cold: float, seed: int
    ) -> None:
        self.config = config(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            segment_index_bytes=index_bytes,
            retention_ms=-1,
            retention_bytes=3 * segment_bytes,
        )
        self.fs = FaultyFileSystem(random.Random(seed))
        self.fs.cold_probability = cold
        self.log = new_log("/data", self.config, self.fs)
        self.twin = ReferenceLog()
        self.leader_epoch = 0

    @rule(
        sizes=st.lists(
            st.tuples(st.integers(1, 4), st.integers(0, 300), st.integers(0, 50)), max_size=12
        )
    )
    def append(self, sizes: list[tuple[int, int, int]]) -> None:
        for count, size, time in sizes:
            data = batch(count, size=size // count, timestamp=NOW_MS + time)
            append(self.log, data, self.leader_epoch)
            self.twin.append(bytes(data), [NOW_MS + time + index for index in range(count)])

    @rule(
        at=st.floats(0, 1),
        end=st.floats(0, 1),
        max_bytes=st.integers(0, 5000),
        min_one=st.booleans(),
    )
    def read(self, at: float, end: float, max_bytes: int, min_one: bool) -> None:
        twin = self.twin
        start = twin.start + round(at * (twin.end - twin.start))
        end_offset = start + round(end * (twin.end - start))
        found = read(self.log, start, max_bytes, end_offset=end_offset, min_one_batch=min_one)
        expected = twin.read(start, max_bytes, end_offset, min_one)
        data = content(found)
        whole = b"".join(one.data for one in expected)
        assert whole.startswith(data)
        if not data:
            assert not whole or found.region is None
            assert not expected
            return
        count = len(expected)
        if len(data) < len(whole):
            # Only a segment's end may stop a read early.
            count = next(
                number for number in range(count)
                if sum(len(one.data) for one in expected[:number]) == len(data)
            )  # fmt: skip
            assert expected[count].base_offset in {s.base_offset for s in self.log.segments}
        assert found.base_offset in (expected[0].base_offset, start)
        assert expected[count - 1].end <= found.next_offset <= end_offset

    @rule(offset=st.sampled_from((-1, 1)))
    def read_outside(self, offset: int) -> None:
        bad = self.twin.start - 1 if offset < 0 else self.twin.end + 1
        with pytest.raises(KafkaError):
            self.log.read(bad, 100, self.twin.end, True)

    @rule(time=st.integers(-5, 60), end=st.floats(0, 1))
    def look_up_time(self, time: int, end: float) -> None:
        end_offset = self.twin.start + round(end * (self.twin.end - self.twin.start))
        found = warm(lambda: self.log.offset_for_timestamp(NOW_MS + time, end_offset))
        expected = self.twin.offset_for_timestamp(NOW_MS + time, end_offset)
        assert (None if found is None else found[:2]) == expected

    @rule()
    def look_up_youngest(self) -> None:
        found: Any = warm(self.log.max_timestamp_offset)
        assert (None if found is None else found[:2]) == self.twin.max_timestamp()

    @rule(at=st.floats(0, 1))
    def truncate(self, at: float) -> None:
        # At the borders of batches, as followers do it.
        ends = [one.end for one in self.twin.batches if one.end >= self.twin.start]
        ends.append(self.twin.end)
        offset = ends[round(at * (len(ends) - 1))]
        self.log.truncate_to(offset)
        if offset < self.twin.end:
            self.twin.truncate(offset)
        self.leader_epoch += 1

    @rule(ahead=st.integers(0, 20))
    def start_anew(self, ahead: int) -> None:
        self.log.truncate_fully_and_start_at(self.twin.end + ahead)
        self.twin.start_anew(self.twin.end + ahead)
        self.leader_epoch += 1

    @rule(at=st.floats(0, 1))
    def delete_records(self, at: float) -> None:
        offset = self.twin.start + round(at * (self.twin.end - self.twin.start))
        self.log.set_high_watermark(self.twin.end)
        self.log.set_log_start_offset(offset)
        self.twin.start = offset

    @rule()
    def retain(self) -> None:
        self.log.set_high_watermark(self.twin.end)
        outcome = warm(lambda: self.log.condemn(NOW_MS))
        assert isinstance(outcome, RetentionOutcome)
        if outcome.flush is not None:
            outcome.flush.run()
            self.log.on_flushed(outcome.flush, None)
        assert self.log.delete_condemned(1000) == outcome.doomed
        self.twin.drop_below(self.log.segments.first.base_offset)
        self.log._context.doomed.clear()

    @rule()
    def roll(self) -> None:
        work = self.log.roll(NOW_MS)
        if work is not None:
            work.run()
            self.log.on_flushed(work, None)

    @rule()
    def rest(self) -> None:
        self.log.rest()

    @rule()
    def flush(self) -> None:
        flush(self.log)
        assert self.log.flushed_offset == self.log.log_end_offset

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        recovery_point = self.log.recovery_point
        if clean:
            self.log.close()
        self.log = reopen(
            "/data",
            self.config,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=self.twin.start,
            fs=self.fs,
        )
        if not clean:
            self.twin.drop_below(self.log.segments.first.base_offset)
        self.leader_epoch += 1

    @precondition(lambda self: hasattr(self, "log"))
    @invariant()
    def offsets_agree(self) -> None:
        assert self.log.log_end_offset == self.twin.end
        assert self.log.log_start_offset == self.twin.start
        assert self.log.size_in_bytes == sum(len(one.data) for one in self.twin.batches)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.trim()
            check_indexes(self.log)


LogMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)
TestLog = LogMachine.TestCase
