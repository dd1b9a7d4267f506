"""Two thousand crashes, each in the middle of some call, each reopened and checked.

A run is a row of random operations on one partition over the faulty file system: append, flush,
roll, truncate, delete records, retention, checkpoint, rest, delete and create anew, stop and
start. At a random call the process dies, by ``kill -9`` or by power loss. What must hold then:

- the broker starts, and the partition is online;
- nothing that a flush acknowledged is lost; after a kill nothing that an append acknowledged is;
- what is there is a prefix of what was appended, byte for byte, offsets without gaps;
- indexes lead to the batches that they name; producers are those of the batches that are left.
"""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from broker.model.ids import TopicId
from broker.records.header import peek_header, walk_headers
from broker.storage import log_manager
from broker.storage.log import Log
from broker.storage.log_manager import WINDOW_MS, LogManager
from tests.broker.storage.build import NOW_MS, TP, FixedClock, batch, config, open_manager
from tests.broker.storage.check import check_indexes, check_producers
from tests.support.faulty_filesystem import Crash, FaultyFileSystem

CRASHES = 2000
CRASHES_PER_RUN = 4
RUNS = CRASHES // CRASHES_PER_RUN
GROUPS = 20
ROOT = "/data"
CONFIG = config(
    segment_bytes=1800,
    index_interval_bytes=250,
    segment_index_bytes=96,
    retention_bytes=6000,
    retention_ms=-1,
    file_delete_delay_ms=0,
)


@dataclass
class Model:
    """What the partition must hold, by what was acknowledged."""

    topic_id: TopicId
    batches: list[tuple[int, bytes]] = field(default_factory=list)
    end: int = 0
    flushed: int = 0
    #: By DeleteRecords, or as retention has told: no crash takes that back.
    start: int = 0
    #: Set while a call may have happened or not.
    cut_to: int | None = None
    is_being_deleted: bool = False
    is_being_started_anew: bool = False

    def cut(self, offset: int) -> None:
        self.batches = [(base, data) for base, data in self.batches if _end(base, data) <= offset]
        self.end = offset
        self.flushed = min(self.flushed, offset)


def _end(base_offset: int, data: bytes) -> int:
    """A batch whose append was cut short bears no offset yet."""
    return base_offset + peek_header(data).last_offset_delta + 1


class Run:
    """One life story of a partition."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.fs = FaultyFileSystem(self.rng)
        self.fs.cold_probability = self.rng.choice((0.0, 0.1))
        self.clock = FixedClock()
        self.leader_epoch = 0
        self.sequences: dict[int, int] = {}
        self.producer_epoch = 0
        #: What a cut that never came to its end may have left on the disk under what is seen.
        self.ghosts: set[bytes | None] = set()
        self.is_mapped = self.rng.random() < 0.5
        self.manager = self.start()
        self.model = Model(uuid.UUID(int=1))
        self.log = self.manager.get_or_create(TP, self.model.topic_id, CONFIG)
        self.topics = 1
        self.crashes_by_power = 0

    def start(self) -> LogManager:
        return open_manager(
            [ROOT], CONFIG, fs=self.fs, clock=self.clock, max_mapped_tails=256 * self.is_mapped
        )

    def begin_producers_anew(self) -> None:
        """What they wrote may be gone: a client goes on with a new epoch from sequence 0."""
        self.producer_epoch += 1
        self.sequences.clear()

    # Operations ------------------------------------------------------------------------------

    def append(self) -> None:
        options = {}
        producer_id = self.rng.choice((-1, -1, 5, 6))
        count = self.rng.randrange(1, 4)
        if producer_id >= 0:
            sequence = self.sequences.get(producer_id, 0)
            options = {
                "producer_id": producer_id,
                "producer_epoch": self.producer_epoch,
                "base_sequence": sequence,
            }
            self.sequences[producer_id] = sequence + count
        data = batch(
            count,
            size=self.rng.randrange(150),
            timestamp=NOW_MS + self.rng.randrange(100),
            **options,
        )
        base_offset = self.model.end
        self.model.batches.append((base_offset, data))
        info = self.log.append_as_leader(data, peek_header(data), self.leader_epoch, NOW_MS)
        assert info.base_offset == base_offset
        self.model.batches[-1] = (base_offset, bytes(data))
        self.model.end = info.last_offset + 1
        if info.rolled is not None:
            self.finish(info.rolled)

    def finish(self, work: object) -> None:
        """Most syncs come back; some are overtaken by the crash."""
        if self.rng.random() < 0.8:
            work.run()  # type: ignore[attr-defined]
            self.log.on_flushed(work, None)  # type: ignore[arg-type]
            self.model.flushed = max(self.model.flushed, self.log.flushed_offset)

    def flush(self) -> None:
        work = self.log.flush_target()
        if work is not None:
            work.run()
            self.log.on_flushed(work, None)
            self.model.flushed = self.log.flushed_offset

    def roll(self) -> None:
        work = self.log.roll(NOW_MS)
        if work is not None:
            self.finish(work)

    def truncate(self) -> None:
        low = max(self.model.start, self.log.log_start_offset)
        ends = [base for base, _ in self.model.batches if base >= low] + [self.model.end]
        offset = self.rng.choice(ends)
        self.model.cut_to = offset
        self.log.truncate_to(offset)
        self.model.cut(offset)
        if offset == self.log.log_start_offset == self.log.segments.first.base_offset:
            self.model.batches = []
        self.model.cut_to = None
        self.leader_epoch += 1
        self.begin_producers_anew()

    def start_anew(self) -> None:
        offset = self.model.end + self.rng.randrange(10)
        self.model.is_being_started_anew = True
        self.log.truncate_fully_and_start_at(offset)
        self.model.batches = []
        self.model.start = self.model.end = self.model.flushed = offset
        self.model.is_being_started_anew = False
        self.begin_producers_anew()

    def delete_records(self) -> None:
        self.log.set_high_watermark(self.model.end)
        if self.model.end > self.log.log_start_offset:
            offset = self.rng.randrange(self.log.log_start_offset, self.model.end + 1)
            self.log.set_log_start_offset(offset)
            for work in self.manager.log_start_work():
                work.run()
            self.model.start = max(self.model.start, offset)

    def retain(self) -> None:
        self.log.set_high_watermark(
            self.rng.randrange(self.log.log_start_offset, self.model.end + 1)
        )
        for step in self.manager.condemn(self.log):
            if step.wait is not None:
                step.wait()
            elif step.outcome is not None and step.outcome.flush is not None:
                self.finish(step.outcome.flush)
        if self.rng.random() < 0.5:  # others have their turn
            self.rng.choice((self.append, self.truncate, self.tick))()
        for work in self.manager.log_start_work():
            work.run()
        for _ in self.manager.delete_condemned(self.log):
            self.model.start = max(self.model.start, self.log.log_start_offset)

    def checkpoint(self) -> None:
        for work in self.manager.checkpoint_work():
            work.run()

    def checkpoint_tail(self) -> None:
        self.log.checkpoint()

    def tick(self) -> None:
        self.clock.monotonic += WINDOW_MS
        for work in self.manager.tick(self.clock.monotonic):
            work.run()

    def heat(self) -> None:
        if self.is_mapped:
            self.log._heat()

    def delete_topic(self) -> None:
        self.model.is_being_deleted = True
        work = self.manager.delete(TP)
        assert work is not None
        work.run()
        self.topics += 1
        self.model = Model(uuid.UUID(int=self.topics))
        self.log = self.manager.get_or_create(TP, self.model.topic_id, CONFIG)
        self.leader_epoch = 0
        self.begin_producers_anew()

    def restart(self) -> None:
        # One log is closed as thousands are, every other time.
        limit = self.rng.choice((0, 32))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(log_manager, "_MAX_SINGLE_SYNCS", limit)
            self.manager.close()
        self.manager = self.start()
        self.model.flushed = self.model.end
        self.check(is_kill=True)

    OPERATIONS = (
        [append] * 60 + [flush] * 8 + [roll] * 3 + [checkpoint] * 5 + [tick] * 3 + [heat] * 3
        + [truncate] * 3 + [delete_records] * 2 + [retain] * 2 + [start_anew] + [delete_topic]
        + [restart] + [checkpoint_tail] * 6
    )  # fmt: skip

    # Crashing --------------------------------------------------------------------------------

    def live(self) -> None:
        """Operate until the crash, which may also hit the next start."""
        self.fs.fail_at(self.rng.randrange(1, 120))
        try:
            while True:
                self.rng.choice(self.OPERATIONS)(self)
        except Crash:
            pass
        is_kill = self.rng.random() < 0.5
        for _ in range(self.rng.choice((0, 0, 0, 1, 2))):
            self.reboot(is_kill)
            self.fs.fail_at(self.rng.randrange(1, 40))
            try:
                self.manager = self.start()
            except Crash:
                is_kill = is_kill and self.rng.random() < 0.5
            self.fs.fail_at(-1)
        self.reboot(is_kill)
        self.manager = self.start()
        self.check(is_kill)

    def reboot(self, is_kill: bool) -> None:
        cold = self.fs.cold_probability
        self.fs = self.fs.after_kill() if is_kill else self.fs.after_power_loss()
        self.fs.cold_probability = cold

    def check(self, is_kill: bool) -> None:
        self.begin_producers_anew()
        assert not self.manager.offline_partitions
        model = self.model
        log = self.manager.logs.get(TP)
        if log is None or log.topic_id != model.topic_id:
            promised = model.end if is_kill else model.flushed
            assert model.is_being_deleted or not any(
                model.start < _end(base, data) <= promised for base, data in model.batches
            )
            self.topics += 1
            self.model = Model(uuid.UUID(int=self.topics))
            if log is not None and log.topic_id is None:
                self.manager.delete(TP)
            self.log = self.manager.get_or_create(TP, self.model.topic_id, CONFIG)
            return
        self.log = log
        found = _batches(log)
        known = dict(model.batches)
        for base, data in found:
            is_known = _unstamped(known.get(base)) == _unstamped(data)
            assert is_known or _unstamped(data) in self.ghosts, f"other bytes at {base}"
        for before, (base, _) in pairwise(found):
            assert _end(*before) == base
        assert (_end(*found[-1]) if found else log.log_end_offset) == log.log_end_offset
        if not model.is_being_started_anew:
            self.check_bounds(log, found, is_kill)
        check_indexes(log)
        check_producers(log)
        self.accept(log, found)

    def check_bounds(self, log: Log, found: list[tuple[int, bytes]], is_kill: bool) -> None:
        model = self.model
        promised = model.end if is_kill else model.flushed
        if model.cut_to is not None:
            promised = min(promised, model.cut_to)
        assert log.log_end_offset >= promised, f"{promised} was promised, {log}"
        assert log.log_start_offset >= min(model.start, log.log_end_offset)
        if found:
            assert found[0][0] <= log.log_start_offset

    def accept(self, log: Log, found: list[tuple[int, bytes]]) -> None:
        """From here on the partition is what it was found to be."""
        if self.model.cut_to is not None:
            self.ghosts.update(_unstamped(data) for _, data in self.model.batches)
        self.model = Model(
            self.model.topic_id,
            found,
            log.log_end_offset,
            log.flushed_offset,
            log.log_start_offset,
        )
        self.leader_epoch = max(self.leader_epoch, log.latest_leader_epoch) + 1


def _unstamped(data: bytes | None) -> bytes | None:
    """Offset and epoch are stamped by the append, which a crash may have kept from returning."""
    return None if data is None else bytes(data[16:])


def _batches(log: Log) -> list[tuple[int, bytes]]:
    found = []
    for segment in log.segments:
        data = segment.records.file.pread(segment.size, 0)
        for position, header in walk_headers(data):
            found.append((header.base_offset, data[position : position + header.size_in_bytes]))
        assert sum(h.size_in_bytes for _, h in walk_headers(data)) == segment.size
    return found


@pytest.mark.parametrize("group", range(GROUPS))
def test_nothing_promised_is_lost(group: int) -> None:
    for seed in range(group * RUNS // GROUPS, (group + 1) * RUNS // GROUPS):
        run = Run(seed)
        for number in range(CRASHES_PER_RUN):
            try:
                run.live()
            except Exception as error:
                error.add_note(f"seed {seed}, crash {number}")
                raise
