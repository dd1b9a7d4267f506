"""``log.cleaner.io.max.bytes.per.second``: every byte that the cleaner moves, against a clock that only sleeping moves."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from broker.records.builder import build_batch
from broker.records.record import Record
from broker.storage.cleaning.cleaned_writer import WRITE_BYTES
from broker.storage.cleaning.plan import CleanerLimits
from broker.storage.cleaning.throttle import Throttle
from broker.storage.filesystem import File, RealFileSystem
from tests.broker.storage.build import NOW_MS, append, flush, open_manager
from tests.broker.storage.cleaning import TP, clean_once, compacted

RATE = 1_000_000
BUFFER_BYTES = 256 * 1024
BURST_MS = 100


class SleptTime:
    """Passes by sleeping, and by ``work`` of a test."""

    def __init__(self) -> None:
        self.ms = 1_000.0
        self.slept_ms: list[float] = []

    def now_ms(self) -> int:
        return int(self.ms)

    def sleep(self, seconds: float) -> None:
        self.slept_ms.append(seconds * 1000)
        self.ms += seconds * 1000

    def throttle(self, rate: float = RATE) -> Throttle:
        return Throttle(rate, now_ms=self.now_ms, sleep=self.sleep)


class CountedFiles(RealFileSystem):
    """Tells ``moved`` of every byte that is read from its files or appended to them."""

    def __init__(self, time: SleptTime) -> None:
        super().__init__(64)
        self.time = time
        self.read = 0
        self.written = 0
        #: The largest lead over what the rate allows, whenever something was moved.
        self.lead = 0.0
        self._start_ms = time.ms

    def open(self, path: str, **options: Any) -> Any:
        return CountedFile(super().open(path, **options), self)

    def note(self, *, read: int = 0, written: int = 0) -> None:
        self.read += read
        self.written += written
        allowed = RATE * (self.time.ms - self._start_ms) / 1000
        self.lead = max(self.lead, self.read + self.written - allowed)


class CountedFile:
    def __init__(self, file: File, files: CountedFiles) -> None:
        self._file = file
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def pread(self, length: int, position: int) -> bytes:
        data = self._file.pread(length, position)
        self._files.note(read=len(data))
        return data

    def append(self, data: Any) -> None:
        self._file.append(data)
        self._files.note(written=len(data))


@pytest.mark.interpreted  # what counts its calls is a double of a compiled class
@pytest.mark.parametrize("batch_bytes", [2_000, 90_000, 400_000])
def test_what_is_read_and_written_is_never_ahead_of_the_limit(
    tmp_path: Path, batch_bytes: int
) -> None:
    topic = compacted(segment_bytes=1_500_000)
    manager = open_manager([tmp_path], topic)
    log = manager.get_or_create(TP, None, topic)
    rng = random.Random(batch_bytes)
    for _ in range(6_000_000 // batch_bytes):
        records = [
            Record(index, NOW_MS, b"key-%d" % rng.randrange(60), rng.randbytes(batch_bytes // 4))
            for index in range(4)
        ]
        append(log, build_batch(records))
    rolled = log.roll(NOW_MS)
    assert rolled is not None
    rolled.run()
    log.on_flushed(rolled, None)
    flush(log)
    log.set_high_watermark(log.log_end_offset)

    time = SleptTime()
    files = CountedFiles(time)
    began_ms = time.ms
    limits = CleanerLimits(1 << 20, 0.9, BUFFER_BYTES, RATE)
    result = clean_once(manager, log, NOW_MS, limits, files, time.throttle())
    assert 0 < result.records_after < result.records_before

    # Both passes read everything, and what stays is written.
    assert files.read >= 2 * result.bytes_before
    assert files.written >= result.bytes_after
    moved, took_s = files.read + files.written, (time.ms - began_ms) / 1000
    at_once = max(BUFFER_BYTES // 2, batch_bytes + 1000) * 2 + WRITE_BYTES + RATE * BURST_MS // 1000
    assert files.lead <= at_once, "a block, a batch and what was gathered to be written"
    assert moved <= RATE * took_s + at_once
    # Nor is it slower than it may be: nothing is counted twice.
    assert took_s <= moved / RATE * 1.05


def test_a_sleep_pays_for_what_was_taken_and_is_not_too_short() -> None:
    time = SleptTime()
    throttle = time.throttle()
    for _ in range(100):
        throttle.take(10_000)
    assert sum(time.slept_ms) == pytest.approx(1_000, abs=2 * BURST_MS)
    assert min(time.slept_ms) >= BURST_MS


def test_a_slow_stretch_is_not_made_up_for() -> None:
    time = SleptTime()
    throttle = time.throttle()
    time.ms += 3_600_000  # of a disk that was slow, or a machine that slept
    for _ in range(100):
        throttle.take(10_000)
    assert sum(time.slept_ms) >= 1_000 - 2 * BURST_MS


def test_small_pieces_count_as_large_ones_do() -> None:
    time = SleptTime()
    throttle = time.throttle()
    for _ in range(10_000):
        throttle.take(100)
    assert sum(time.slept_ms) == pytest.approx(1_000, abs=2 * BURST_MS)
