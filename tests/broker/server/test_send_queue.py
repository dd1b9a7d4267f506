"""What leaves a socket, in which order and how much a time; and that every pin is undone."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.model.file_region import FileRegion
from broker.server.send_queue import (
    COLD_BYTES,
    JOIN_BYTES,
    MAX_DISTRUST_BYTES,
    MIN_DISTRUST_BYTES,
    PIECE_BYTES,
    SMALL_REGION_BYTES,
    TURN_BYTES,
    ColdSend,
    SendQueue,
    SendStatus,
    StaleRegionError,
)
from broker.storage.filesystem import RealFile, RealFileSystem

DRAINED, BLOCKED, COLD = SendStatus.DRAINED, SendStatus.BLOCKED, SendStatus.COLD


class Pair:
    """A queue over one end of a socket pair; the other end is read by ``receive``."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair()
        for each in (self.ours, self.theirs):
            each.setblocking(False)
        self.queue = SendQueue(self.ours)
        self.received = bytearray()

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()

    def receive(self) -> int:
        """Read what is there."""
        before = len(self.received)
        try:
            while data := self.theirs.recv(1 << 20):
                self.received += data
        except BlockingIOError:
            pass
        return len(self.received) - before

    def drain(self) -> list[SendStatus]:
        """Flush and read until all has gone; the statuses met."""
        met = []
        while True:
            met.append(self.queue.flush())
            self.receive()
            if met[-1] is DRAINED:
                return met


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


class FileUnderTest:
    """A real file whose pages are in memory as the test says."""

    def __init__(self, directory: Path, size: int) -> None:
        self.file: RealFile = RealFileSystem().open(str(directory / "records"), create=True)
        self.file.append(random.Random(3).randbytes(size))
        self.generation = 0
        self.cold: set[int] = set()
        self.asked: list[tuple[int, int]] = []

    @property
    def pins(self) -> int:
        return self.file.pins

    def pin(self) -> int:
        return self.file.pin()

    def unpin(self) -> None:
        self.file.unpin()

    def peek(self, length: int, position: int) -> bytes | None:
        return None if position in self.cold else self.file.peek(length, position)

    def is_resident(self, position: int, length: int) -> bool:
        self.asked.append((position, length))
        return position not in self.cold

    def region(self, position: int, length: int) -> FileRegion:
        return FileRegion(self, self.generation, position, length)

    def content(self, position: int, length: int) -> bytes:
        return self.file.pread(length, position)


@pytest.fixture
def file(tmp_path: Path) -> FileUnderTest:
    return FileUnderTest(tmp_path, 3 * PIECE_BYTES)


def test_buffers_and_regions_leave_in_order(pair: Pair, file: FileUnderTest) -> None:
    pair.queue.push(b"head")
    pair.queue.push(file.region(5, 1000))
    pair.queue.push(b"between")
    pair.queue.push(file.region(0, 10))
    pair.drain()
    assert bytes(pair.received) == b"".join(
        [b"head", file.content(5, 1000), b"between", file.content(0, 10)]
    )
    assert not pair.queue
    assert file.pins == 0
    assert pair.queue.queued_bytes == 0


def test_random_answers_survive_a_socket_that_takes_little(pair: Pair, file: FileUnderTest) -> None:
    pair.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    dice = random.Random(8)
    expected = bytearray()
    statuses: list[SendStatus] = []
    for _ in range(300):
        if dice.random() < 0.5:
            data = dice.randbytes(dice.choice([1, 10, 1000, JOIN_BYTES - 1, JOIN_BYTES, 200_000]))
            pair.queue.push(data)
            expected += data
        else:
            position = dice.randrange(file.file.size - 100_000)
            length = dice.choice([0, 1, 1000, 100_000])
            pair.queue.push(file.region(position, length))
            expected += file.content(position, length)
        if dice.random() < 0.3:
            statuses.append(pair.queue.flush())
            pair.receive()
    statuses += pair.drain()
    assert pair.received == expected
    assert BLOCKED in statuses
    assert pair.queue.queued_bytes == 0
    assert file.pins == 0


def test_queued_bytes_are_those_in_memory(pair: Pair, file: FileUnderTest) -> None:
    pair.queue.push(bytes(3_000_000))
    pair.queue.push(file.region(0, 1000))
    assert pair.queue.queued_bytes == 3_000_000
    assert pair.queue.flush() is BLOCKED
    left = pair.queue.queued_bytes
    assert 0 < left < 3_000_000
    assert pair.receive() == 3_000_000 - left


def test_small_buffers_leave_together(pair: Pair) -> None:
    sent: list[int] = []

    class Counting:
        def send(self, data: bytes, flags: int = 0) -> int:
            sent.append(len(data))
            return pair.ours.send(data, flags)

    pair.queue._socket = Counting()  # type: ignore[assignment]
    for _ in range(100):
        pair.queue.push(b"x" * 50)
    assert pair.queue.flush() is DRAINED
    assert sent == [5000]


def test_joining_has_a_bound(pair: Pair) -> None:
    sent: list[int] = []

    class Counting:
        def send(self, data: bytes, flags: int = 0) -> int:
            sent.append(len(data))
            return len(data)

    pair.queue._socket = Counting()  # type: ignore[assignment]
    for _ in range(10):
        pair.queue.push(bytes(JOIN_BYTES // 2))
    assert pair.queue.flush() is DRAINED
    assert max(sent) <= 2 * JOIN_BYTES
    assert sum(sent) == 10 * (JOIN_BYTES // 2)


class Recording:
    """A socket that says how much each ``send`` took."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.sent: list[int] = []

    def send(self, data: bytes, flags: int = 0) -> int:
        self.sent.append(self._socket.send(data, flags))
        return self.sent[-1]


def test_a_small_region_leaves_together_with_what_is_around_it(
    pair: Pair, file: FileUnderTest
) -> None:
    recording = Recording(pair.ours)
    pair.queue._socket = recording  # type: ignore[assignment]
    pair.queue.push(b"head")
    pair.queue.push(file.region(5, SMALL_REGION_BYTES))
    pair.queue.push(b"tail")
    assert file.pins == 0
    assert pair.queue.queued_bytes == SMALL_REGION_BYTES + 8
    assert pair.queue.flush() is DRAINED
    pair.receive()
    assert pair.received == b"head" + file.content(5, SMALL_REGION_BYTES) + b"tail"
    assert recording.sent == [SMALL_REGION_BYTES + 8]
    assert not file.asked


def test_small_regions_are_read_while_little_waits(pair: Pair, file: FileUnderTest) -> None:
    """However many an answer has, and however slowly the client takes them."""
    count = 100
    for _ in range(count):
        pair.queue.push(file.region(0, SMALL_REGION_BYTES))
    assert JOIN_BYTES < pair.queue.queued_bytes <= JOIN_BYTES + SMALL_REGION_BYTES
    assert file.pins > 0
    pair.drain()
    assert pair.received == file.content(0, SMALL_REGION_BYTES) * count
    assert file.pins == 0


def test_a_small_region_that_was_cut_off_is_not_read(pair: Pair, file: FileUnderTest) -> None:
    region = file.region(0, 1000)
    file.generation += 1
    pair.queue.push(region)
    with pytest.raises(StaleRegionError):
        pair.queue.flush()
    pair.queue.clear()
    assert not pair.receive()


def test_each_piece_is_looked_at_before_it_is_sent(pair: Pair, file: FileUnderTest) -> None:
    pair.queue.push(file.region(7, 2 * PIECE_BYTES))
    pair.drain()
    assert {length for _, length in file.asked} <= set(range(1, PIECE_BYTES + 1))
    assert file.asked[0] == (7, PIECE_BYTES)


def sent_by_a_thread(pair: Pair) -> ColdSend:
    cold = pair.queue.cold
    assert cold is not None
    cold.run()
    pair.queue.cold_sent()
    return cold


def test_a_cold_piece_is_sent_by_a_thread(pair: Pair, file: FileUnderTest) -> None:
    file.cold = {0}
    pair.queue.push(b"head")
    pair.queue.push(file.region(0, 1000))
    assert pair.queue.flush() is COLD
    pair.receive()
    assert pair.received == b"head"
    assert sent_by_a_thread(pair).region_bytes == 1000
    assert pair.queue.flush() is DRAINED
    pair.receive()
    assert pair.received == b"head" + file.content(0, 1000)
    assert file.pins == 0


def sent_by_threads(pair: Pair, file: FileUnderTest, count: int, *, looks: int) -> int:
    """Bytes of so many answers, all of them cold for the first looks, that threads sent."""
    size = 3 * PIECE_BYTES
    for _ in range(count):
        pair.queue.push(file.region(0, size))
    sent = received = 0
    file.asked.clear()
    while (status := pair.queue.flush()) is not DRAINED:
        if status is COLD:
            if len(file.asked) == looks:
                file.cold = set()
            sent += sent_by_a_thread(pair).region_bytes
        received += pair.receive()
        pair.received.clear()
    received += pair.receive()
    assert received == count * size
    assert file.pins == 0
    return sent


def test_what_follows_a_cold_piece_is_not_looked_at_for_a_while(
    pair: Pair, file: FileUnderTest
) -> None:
    file.cold = {0}
    sent = sent_by_threads(pair, file, 8, looks=1)
    assert MIN_DISTRUST_BYTES <= sent < MIN_DISTRUST_BYTES + COLD_BYTES
    assert len(file.asked) > 1


def test_it_is_longer_the_more_is_cold_and_short_again_after_enough_was_not(
    pair: Pair, file: FileUnderTest
) -> None:
    file.cold = set(range(0, 3 * PIECE_BYTES, PIECE_BYTES))
    looks = 5
    expected = sum(MIN_DISTRUST_BYTES << number for number in range(looks))
    sent = sent_by_threads(pair, file, expected // (3 * PIECE_BYTES) + 110, looks=looks)
    assert expected <= sent < expected + looks * COLD_BYTES
    # More than 64 MiB were found in memory since: short again.
    file.cold = {0}
    sent = sent_by_threads(pair, file, 8, looks=1)
    assert MIN_DISTRUST_BYTES <= sent < MIN_DISTRUST_BYTES + COLD_BYTES


def test_the_longest_is_bounded(pair: Pair, file: FileUnderTest) -> None:
    file.cold = {0}
    for _ in range(12):
        pair.queue._distrust()
    assert pair.queue._distrusted_bytes == MAX_DISTRUST_BYTES


def test_a_thread_sends_many_small_items_at_once(pair: Pair, file: FileUnderTest) -> None:
    expected = bytearray()
    file.cold = {0}
    pair.queue.push(file.region(0, 10))
    expected += file.content(0, 10)
    for number in range(1, 50):
        pair.queue.push(b"head %d" % number)
        pair.queue.push(file.region(number, 1000))
        expected += b"head %d" % number + file.content(number, 1000)
    assert pair.queue.flush() is COLD
    cold = sent_by_a_thread(pair)
    assert cold.whole_count == 99
    assert not pair.queue
    assert pair.queue.queued_bytes == 0
    pair.receive()
    assert pair.received == expected
    assert file.pins == 0


def test_random_answers_of_cold_files_survive_a_socket_that_takes_little(
    pair: Pair, file: FileUnderTest
) -> None:
    pair.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    dice = random.Random(9)
    expected = bytearray()
    for _ in range(200):
        if dice.random() < 0.5:
            data = dice.randbytes(dice.choice([1, 1000, JOIN_BYTES, 200_000]))
            pair.queue.push(data)
            expected += data
        else:
            position = dice.randrange(file.file.size - 100_000)
            length = dice.choice([1, 1000, 100_000])
            file.cold.add(position)
            pair.queue.push(file.region(position, length))
            expected += file.content(position, length)
    statuses = []
    while not statuses or statuses[-1] is not DRAINED:
        statuses.append(pair.queue.flush())
        if statuses[-1] is COLD:
            sent_by_a_thread(pair)
        pair.receive()
    pair.receive()
    assert pair.received == expected
    assert COLD in statuses
    assert pair.queue.queued_bytes == 0
    assert file.pins == 0


def test_a_thread_does_not_wait_for_the_socket(pair: Pair, file: FileUnderTest) -> None:
    file.cold = {0}
    pair.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    pair.queue.push(file.region(0, 3 * PIECE_BYTES))
    assert pair.queue.flush() is COLD
    cold = sent_by_a_thread(pair)
    assert cold.is_full
    assert 0 < cold.region_bytes < 3 * PIECE_BYTES
    while pair.queue.flush() is COLD:
        pair.receive()
        sent_by_a_thread(pair)
    pair.receive()
    assert pair.received == file.content(0, 3 * PIECE_BYTES)
    assert file.pins == 0


def test_what_a_thread_sends_of_a_file_that_was_cut_is_stale(
    pair: Pair, file: FileUnderTest
) -> None:
    file.cold = {0}
    region = file.region(0, 1000)
    pair.queue.push(region)
    assert pair.queue.flush() is COLD
    file.generation += 1
    with pytest.raises(StaleRegionError):
        sent_by_a_thread(pair)
    pair.queue.cold_sent()
    pair.queue.clear()
    assert not pair.receive()
    assert file.pins == 0


def test_a_queue_may_be_cleared_while_a_thread_sends(pair: Pair, file: FileUnderTest) -> None:
    file.cold = {0}
    pair.queue.push(file.region(0, 1000))
    assert pair.queue.flush() is COLD
    pair.queue.clear()
    assert file.pins == 1
    sent_by_a_thread(pair)
    assert not pair.queue
    assert file.pins == 0


def test_one_flush_sends_so_much_of_files_and_no_more(
    pair: Pair, file: FileUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []

    def sendfile(target: int, source: int, position: int, count: int) -> int:
        sent.append(count)
        return count

    monkeypatch.setattr("broker.server.send_queue.os.sendfile", sendfile)
    for _ in range(6):
        pair.queue.push(file.region(0, 3 * PIECE_BYTES))
    turns = 0
    while pair.queue.flush() is BLOCKED:
        turns += 1
        assert sum(sent) <= turns * (TURN_BYTES + PIECE_BYTES)
    assert sum(sent) == 18 * PIECE_BYTES
    assert turns >= sum(sent) // (TURN_BYTES + PIECE_BYTES)
    assert file.pins == 0


def test_a_region_of_a_file_that_was_cut_is_never_sent(pair: Pair, file: FileUnderTest) -> None:
    pair.queue.push(b"head")
    pair.queue.push(file.region(0, SMALL_REGION_BYTES + 1))
    file.generation += 1
    with pytest.raises(StaleRegionError):
        pair.queue.flush()
    pair.receive()
    assert pair.received == b"head"
    pair.queue.clear()
    assert file.pins == 0


def test_a_region_past_the_end_of_its_file_is_stale(pair: Pair, file: FileUnderTest) -> None:
    pair.queue.push(file.region(file.file.size - 10, 1000))
    with pytest.raises(StaleRegionError):
        while True:
            pair.queue.flush()
            pair.receive()
    pair.queue.clear()
    assert file.pins == 0


def test_a_peer_that_has_gone_is_an_error_and_leaves_nothing_pinned(
    pair: Pair, file: FileUnderTest
) -> None:
    pair.theirs.close()
    pair.queue.push(b"head")
    pair.queue.push(file.region(0, 1000))
    with pytest.raises(OSError, match="pipe"):
        pair.queue.flush()
    pair.queue.clear()
    assert file.pins == 0
    assert pair.queue.queued_bytes == 0


def test_clearing_gives_every_descriptor_back(pair: Pair, file: FileUnderTest) -> None:
    pair.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    for _ in range(5):
        pair.queue.push(b"head")
        pair.queue.push(file.region(0, PIECE_BYTES))
    pair.queue.flush()
    assert file.pins == 5
    pair.queue.clear()
    assert file.pins == 0
    assert not pair.queue


def test_empty_regions_are_not_queued(pair: Pair, file: FileUnderTest) -> None:
    pair.queue.push(file.region(0, 0))
    assert not pair.queue
    assert file.pins == 0


@pytest.mark.parametrize("size", [10, SMALL_REGION_BYTES + 1])
def test_a_file_that_cannot_be_opened_is_not_queued(
    pair: Pair, file: FileUnderTest, size: int
) -> None:
    def fail(*_: object) -> int:
        raise FileNotFoundError("gone")

    file.pin = fail  # type: ignore[method-assign]
    file.peek = fail  # type: ignore[method-assign,assignment]
    with pytest.raises(FileNotFoundError):
        pair.queue.push(file.region(0, size))
    assert not pair.queue
