"""One connection over a real socket and a real loop, with a dispatcher that does what it is told."""

from __future__ import annotations

import asyncio
import functools
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop

from broker.model.file_region import FileRegion
from broker.protocol.framing import FrameBuffer, ReceiveBudget, Scratch
from broker.protocol.request import RequestHeader
from broker.server.connection import (
    KEPT_FRAME_BYTES,
    MAX_OUTSTANDING,
    MAX_QUEUED_BYTES,
    REQUESTS_PER_TURN,
    Answer,
    CloseConnection,
    Connection,
    ResponseSlot,
)
from broker.server.dispatcher import Dispatcher
from broker.server.listener import Listener
from broker.server.send_queue import COLD_BYTES
from broker.storage.filesystem import RealFile, RealFileSystem
from tests.support.by_hand import ManualThreads

pytestmark = pytest.mark.interpreted  # with doubles of the connection or the dispatcher

PRODUCE, FETCH, METADATA = 0, 1, 3
HOLD, SILENT, REFUSE, LARGE, REGION = "hold", "silent", "refuse", "large", "region"
HOLD_ALONE = "hold alone"


def request(api_key: int, number: int, order: str = "", size: int = 0) -> bytes:
    """A frame whose client id tells the dispatcher below what to do."""
    client_id = order.encode()
    body = struct.pack(">hhih", api_key, 7, number, len(client_id)) + client_id + bytes(size)
    return struct.pack(">i", len(body)) + body


class Orders:
    """The dispatcher: answers with the request's number, or as ordered."""

    def __init__(self) -> None:
        self.threads = ManualThreads()
        self.started: list[int] = []
        self.held: dict[int, ResponseSlot] = {}
        self.large = bytes(200_000)
        self.region: Callable[[], FileRegion] | None = None
        self.on_start: Callable[[int], None] = lambda number: None

    def dispatch(
        self, connection: Connection, header: RequestHeader, frame: memoryview
    ) -> Answer | None:
        number = header.correlation_id
        self.started.append(number)
        self.on_start(number)
        order = header.client_id
        if order in (HOLD, HOLD_ALONE):
            self.held[number] = connection.defer(header, is_alone=order == HOLD_ALONE)
            return None
        if order == SILENT:
            return None
        if order == REFUSE:
            raise CloseConnection("as ordered")
        if order == LARGE:
            return [struct.pack(">ii", 4 + len(self.large), number) + self.large]
        if order == REGION:
            assert self.region is not None
            region = self.region()
            return [struct.pack(">ii", 4 + region.length, number), region]
        return [answer(number)]

    def release(self, number: int) -> None:
        self.held.pop(number).complete([answer(number)])


def answer(number: int) -> bytes:
    return struct.pack(">ii", 4, number)


class FakeListener:
    def __init__(self, budget_bytes: int) -> None:
        self.budget = ReceiveBudget(budget_bytes, self.on_room)
        self.stalled: set[Connection] = set()
        self.now_ms = 0
        self.closed: list[Connection] = []

    def on_room(self) -> None:
        Listener.on_room(cast(Listener, self))

    def on_closed(self, connection: Connection) -> None:
        self.closed.append(connection)
        self.stalled.discard(connection)


class Side:
    """Both ends: ours, and the client's, which reads and writes as a test says."""

    def __init__(self, budget_bytes: int = 1 << 20, scratch: Scratch | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.orders = Orders()
        self.listener = FakeListener(budget_bytes)
        self.scratch = scratch or Scratch()
        self.clients: list[socket.socket] = []
        self.connections: list[Connection] = []
        self.connect()

    @property
    def client(self) -> socket.socket:
        return self.clients[0]

    @property
    def connection(self) -> Connection:
        return self.connections[0]

    def connect(self) -> socket.socket:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            client = socket.create_connection(listening.getsockname())
            ours, address = listening.accept()
        for each in (ours, client):
            each.setblocking(False)
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        frames = FrameBuffer(self.scratch, self.listener.budget, 1 << 20)
        self.clients.append(client)
        self.connections.append(
            Connection(
                ours,
                *address,
                cast(Listener, self.listener),
                cast(Dispatcher, self.orders),
                frames,
                self.loop,
            )
        )
        return client

    async def send(self, *frames: bytes, client: socket.socket | None = None) -> None:
        await self.loop.sock_sendall(client or self.client, b"".join(frames))

    async def receive(self, size: int, client: socket.socket | None = None) -> bytes:
        data = b""
        async with asyncio.timeout(20):
            while len(data) < size:
                more = await self.loop.sock_recv(client or self.client, size - len(data))
                if not more:
                    raise EOFError(f"{len(data)} of {size} bytes")
                data += more
        return data

    async def numbers(self, count: int, client: socket.socket | None = None) -> list[int]:
        """Correlation ids of the next small answers."""
        data = await self.receive(8 * count, client)
        return [number for _, number in struct.iter_unpack(">ii", data)]

    async def is_cut_off(self) -> bool:
        async with asyncio.timeout(20):
            try:
                while await self.loop.sock_recv(self.client, 65536):
                    pass
            except ConnectionResetError:
                pass
        return True

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let the loop turn until it is so."""
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0)

    async def settle(self) -> None:
        """All that can happen without the client has happened."""
        for _ in range(50):
            await asyncio.sleep(0)


@asynccontextmanager
async def side(**options: Any) -> AsyncIterator[Side]:
    made = Side(**options)
    try:
        yield made
    finally:
        for connection in made.connections:
            connection.close(None)
        for client in made.clients:
            client.close()
        made.orders.threads.run()


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test runs on the loop that the broker uses."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(test(**fixtures))

    return run


# Order


@on_loop
async def test_answers_come_in_the_order_of_the_requests() -> None:
    async with side() as s:
        await s.send(
            request(PRODUCE, 1, HOLD), request(PRODUCE, 2), request(PRODUCE, 3, HOLD),
            request(PRODUCE, 4),
        )  # fmt: skip
        await s.until(lambda: len(s.orders.started) == 4)
        s.orders.release(3)
        await s.settle()
        with pytest.raises(BlockingIOError):
            s.client.recv(1)
        s.orders.release(1)
        assert await s.numbers(4) == [1, 2, 3, 4]


@on_loop
async def test_sixteen_produces_may_be_outstanding_and_no_more() -> None:
    async with side() as s:
        await s.send(*(request(PRODUCE, n, HOLD) for n in range(MAX_OUTSTANDING + 5)))
        await s.until(lambda: len(s.orders.started) == MAX_OUTSTANDING)
        await s.settle()
        assert len(s.orders.started) == MAX_OUTSTANDING
        s.orders.release(0)
        await s.until(lambda: len(s.orders.started) == MAX_OUTSTANDING + 1)
        await s.settle()
        assert len(s.orders.started) == MAX_OUTSTANDING + 1
        for number in range(1, MAX_OUTSTANDING + 5):
            await s.until(lambda number=number: number in s.orders.held)
            s.orders.release(number)
        assert await s.numbers(MAX_OUTSTANDING + 5) == list(range(MAX_OUTSTANDING + 5))
        assert s.listener.budget.used_bytes == 0


@on_loop
async def test_another_request_waits_for_the_produces_before_it() -> None:
    async with side() as s:
        await s.send(request(PRODUCE, 1, HOLD), request(METADATA, 2), request(PRODUCE, 3))
        await s.until(lambda: s.orders.started == [1])
        await s.settle()
        assert s.orders.started == [1]
        s.orders.release(1)
        assert await s.numbers(3) == [1, 2, 3]


@on_loop
async def test_a_produce_that_takes_several_turns_holds_up_all_behind_it() -> None:
    async with side() as s:
        await s.send(
            request(PRODUCE, 1, HOLD), request(PRODUCE, 2, HOLD_ALONE), request(PRODUCE, 3, HOLD)
        )
        await s.until(lambda: s.orders.started == [1, 2])
        s.orders.release(1)
        await s.settle()
        assert s.orders.started == [1, 2]
        s.orders.release(2)
        await s.until(lambda: s.orders.started == [1, 2, 3])
        s.orders.release(3)
        assert await s.numbers(3) == [1, 2, 3]


@on_loop
async def test_a_long_poll_holds_up_everything_behind_it() -> None:
    async with side() as s:
        await s.send(request(FETCH, 1, HOLD), request(PRODUCE, 2), request(FETCH, 3))
        await s.until(lambda: s.orders.started == [1])
        await s.settle()
        assert s.orders.started == [1]
        s.orders.release(1)
        assert await s.numbers(3) == [1, 2, 3]


@on_loop
async def test_a_produce_may_follow_once_a_long_poll_is_answered() -> None:
    """The connection must not remember that something else than Produce was outstanding once."""
    async with side() as s:
        await s.send(request(FETCH, 1, HOLD))
        await s.until(lambda: s.orders.started == [1])
        s.orders.release(1)
        assert await s.numbers(1) == [1]
        await s.send(request(PRODUCE, 2, HOLD), request(PRODUCE, 3, HOLD))
        await s.until(lambda: s.orders.started == [1, 2, 3])


@on_loop
async def test_requests_without_an_answer_shift_no_other() -> None:
    async with side() as s:
        frames = [request(PRODUCE, n, SILENT) for n in range(1000)]
        await s.send(*frames, request(METADATA, 1000))
        assert await s.numbers(1) == [1000]
        assert s.orders.started == list(range(1001))


@on_loop
async def test_frames_of_all_sizes_cut_anywhere_are_answered_in_order() -> None:
    dice = random.Random(5)
    frames = [
        request(PRODUCE, n, size=dice.choice([0, 10, 1000, 70_000, 200_000])) for n in range(120)
    ]
    stream = b"".join(frames)
    async with side() as s:
        received = asyncio.ensure_future(s.numbers(len(frames)))
        position = 0
        while position < len(stream):
            step = dice.choice([1, 3, 4, 5, 1000, 65_536, 131_072, 300_000])
            await s.send(stream[position : position + step])
            position += step
        assert await received == list(range(120))
        assert s.listener.budget.used_bytes == 0


@on_loop
async def test_a_busy_connection_leaves_turns_to_others() -> None:
    async with side() as s:
        other = s.connect()
        await s.send(*(request(METADATA, n) for n in range(20 * REQUESTS_PER_TURN)))
        await s.send(request(METADATA, 9_999_999), client=other)
        turns: list[int] = []

        def count(number: int) -> None:
            turns.append(number)

        s.orders.on_start = count
        await s.numbers(20 * REQUESTS_PER_TURN)
        assert turns.index(9_999_999) < 19 * REQUESTS_PER_TURN


# Answers that queue up


@on_loop
async def test_a_client_that_never_reads_is_not_read_from() -> None:
    async with side() as s:
        s.orders.large = bytes(600_000)
        frames = [request(METADATA, n, LARGE) for n in range(60)]
        await s.send(*frames)
        await s.until(lambda: s.connection._queue.queued_bytes > MAX_QUEUED_BYTES)
        await s.settle()
        assert len(s.orders.started) < 40
        assert s.connection._queue.queued_bytes < MAX_QUEUED_BYTES + 8 + len(s.orders.large)
        size = 8 + len(s.orders.large)
        for number in range(60):
            data = await s.receive(size)
            assert struct.unpack_from(">ii", data) == (size - 4, number)
        assert s.connection._queue.queued_bytes == 0


@on_loop
async def test_requests_held_back_by_queued_answers_go_on_when_one_send_takes_them_all() -> None:
    """The socket swallows everything at once, so that no writable event will ever come."""
    async with side() as s:
        sink = SwallowingSocket()
        s.connection._queue._socket = cast(socket.socket, sink)
        s.orders.large = bytes(MAX_QUEUED_BYTES)
        await s.send(request(METADATA, 1, LARGE), request(METADATA, 2, LARGE), request(METADATA, 3))
        await s.until(lambda: s.orders.started == [1, 2, 3])
        await s.until(lambda: sink.count == 2 * (MAX_QUEUED_BYTES + 8) + 8)
        await s.send(request(METADATA, 4))
        await s.until(lambda: s.orders.started == [1, 2, 3, 4])


class SwallowingSocket:
    """Has room for everything."""

    def __init__(self) -> None:
        self.count = 0

    def send(self, data: bytes, flags: int = 0) -> int:
        self.count += len(data)
        return len(data)


# The receive budget


@on_loop
async def test_frames_share_the_receive_budget_and_wait_for_room() -> None:
    async with side(budget_bytes=150_000) as s:
        large = request(PRODUCE, 1, size=200_000)
        await s.send(large[:1000])
        await s.until(lambda: s.listener.budget.used_bytes > 0)
        other = s.connect()
        sending = asyncio.ensure_future(s.send(request(PRODUCE, 2, size=200_000), client=other))
        await s.until(lambda: bool(s.listener.stalled))
        await s.settle()
        assert s.orders.started == []
        await s.send(large[1000:])
        assert await s.numbers(1) == [1]
        assert await s.numbers(1, other) == [2]
        await sending
        assert s.listener.budget.used_bytes == 0
        assert not s.listener.stalled


@on_loop
async def test_a_client_that_goes_away_in_the_middle_of_a_frame_gives_its_room_back() -> None:
    async with side(budget_bytes=150_000) as s:
        other = s.connect()
        await s.send(request(PRODUCE, 1, size=200_000)[:1000])
        await s.until(lambda: s.listener.budget.used_bytes > 0)
        sending = asyncio.ensure_future(s.send(request(PRODUCE, 2, size=200_000), client=other))
        await s.until(lambda: bool(s.listener.stalled))
        s.client.close()
        assert await s.numbers(1, other) == [2]
        await sending
        assert s.listener.budget.used_bytes == 0


@on_loop
async def test_a_stalled_client_that_goes_away_leaves_nothing_behind() -> None:
    async with side(budget_bytes=1000) as s:
        s.listener.budget.charge(1000)
        await s.send(request(PRODUCE, 1, size=200_000)[:5000])
        await s.until(lambda: s.connection in s.listener.stalled)
        s.connection.close(None)
        assert not s.listener.stalled
        s.listener.budget.release(1000)
        await s.settle()
        assert s.listener.budget.used_bytes == 0


@pytest.mark.parametrize("order", [HOLD, REFUSE, ""])
def test_charges_are_given_back_once_whatever_becomes_of_a_frame(order: str) -> None:
    @on_loop
    async def test() -> None:
        async with side() as s:
            frames = [request(FETCH, 0, HOLD)]
            frames += [request(PRODUCE, n, order, size=n * 1000) for n in range(1, 60)]
            await s.send(*frames[:3])
            await s.until(lambda: s.orders.started == [0])
            sending = asyncio.ensure_future(s.send(*frames[3:]))
            s.orders.release(0)
            await s.until(lambda: len(s.orders.started) > 1)
            await s.settle()
            s.connection.close("enough")
            assert s.listener.budget.used_bytes == 0
            await asyncio.gather(sending, return_exceptions=True)

    test()


# Ends


@on_loop
async def test_a_closed_connection_cancels_what_waits_and_is_forgotten() -> None:
    async with side() as s:
        await s.send(request(PRODUCE, 1, HOLD), request(PRODUCE, 2, HOLD))
        await s.until(lambda: len(s.orders.held) == 2)
        cancelled: list[int] = []
        for number, slot in s.orders.held.items():
            slot.on_cancel = lambda number=number: cancelled.append(number)
        s.client.close()
        await s.until(lambda: s.connection.is_closed)
        assert cancelled == [1, 2]
        assert s.listener.closed == [s.connection]
        s.orders.release(1)
        s.orders.held.pop(2).fail()
        assert s.listener.closed == [s.connection]


@on_loop
async def test_a_slot_is_answered_once() -> None:
    async with side() as s:
        await s.send(request(PRODUCE, 1, HOLD), request(PRODUCE, 2, HOLD))
        await s.until(lambda: len(s.orders.held) == 2)
        slot = s.orders.held[2]
        slot.complete([answer(2)])
        slot.complete([answer(77)])
        s.orders.release(1)
        slot.complete([answer(78)])
        assert await s.numbers(2) == [1, 2]


@on_loop
async def test_a_request_that_fails_without_an_answer_ends_the_connection() -> None:
    async with side() as s:
        await s.send(request(FETCH, 1, HOLD))
        await s.until(lambda: bool(s.orders.held))
        s.orders.held[1].fail()
        assert await s.is_cut_off()


@on_loop
async def test_requests_behind_a_refused_one_are_not_started() -> None:
    async with side() as s:
        await s.send(request(METADATA, 1), request(METADATA, 2, REFUSE), request(METADATA, 3))
        assert await s.numbers(1) == [1]
        await s.until(lambda: s.connection.is_closed)
        assert s.orders.started == [1, 2]


@pytest.mark.parametrize(
    "junk",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 1 << 30),
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">i", 3) + b"abc",
        struct.pack(">ihhih", 10, 3, 7, 1, 500),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_junk_closes_its_connection(junk: bytes) -> None:
    @on_loop
    async def test() -> None:
        async with side() as s:
            other = s.connect()
            await s.send(junk)
            assert await s.is_cut_off()
            await s.send(request(METADATA, 5), client=other)
            assert await s.numbers(1, other) == [5]

    test()


@on_loop
async def test_an_answer_that_comes_while_the_connection_closes_is_dropped() -> None:
    async with side() as s:
        await s.send(request(PRODUCE, 1, HOLD), request(PRODUCE, 2, HOLD))
        await s.until(lambda: len(s.orders.held) == 2)
        first, second = s.orders.held.pop(1), s.orders.held.pop(2)
        first.on_cancel = lambda: second.complete([answer(2)])
        s.connection.close("now")
        assert not first.is_open
        assert not second.is_open


# Records from files


@pytest.fixture
def records(tmp_path: Path) -> RealFile:
    file = RealFileSystem().open(str(tmp_path / "records"), create=True)
    file.append(random.Random(9).randbytes(3_000_000))
    return file


class ColdFile:
    """A file whose pages are never found in memory, as on a file system that cannot tell."""

    def __init__(self, file: RealFile) -> None:
        self._file = file
        self.generation = 0
        self.look_count = 0

    @property
    def pins(self) -> int:
        return self._file.pins

    def pin(self) -> int:
        return self._file.pin()

    def unpin(self) -> None:
        self._file.unpin()

    def peek(self, length: int, position: int) -> bytes | None:
        return None

    def is_resident(self, position: int, length: int) -> bool:
        self.look_count += 1
        return False


async def read_region(s: Side, records: RealFile, number: int, size: int) -> None:
    data = await s.receive(8 + size)
    assert struct.unpack_from(">ii", data) == (4 + size, number)
    assert data[8:] == records.pread(size, 0)


@on_loop
async def test_regions_and_answers_leave_in_order(records: RealFile) -> None:
    async with side() as s:
        s.orders.region = lambda: FileRegion(records, 0, 0, records.size)
        await s.send(request(FETCH, 1, REGION), request(METADATA, 2), request(FETCH, 3, REGION))
        await read_region(s, records, 1, records.size)
        assert await s.numbers(1) == [2]
        await read_region(s, records, 3, records.size)
        assert records.pins == 0


@on_loop
async def test_pages_that_never_show_as_resident_are_sent_all_the_same(records: RealFile) -> None:
    async with side() as s:
        cold = ColdFile(records)
        size = COLD_BYTES + 5  # less than what is not looked at after one cold piece
        s.orders.region = lambda: FileRegion(cold, 0, 0, size)
        await s.send(request(FETCH, 1, REGION))
        reading = asyncio.ensure_future(read_region(s, records, 1, size))
        while not reading.done():
            s.orders.threads.run()
            await asyncio.sleep(0)
        await reading
        assert cold.look_count == 1
        assert records.pins == 0


@on_loop
async def test_closing_while_a_thread_sends_keeps_both_descriptors_until_it_ends(
    records: RealFile,
) -> None:
    async with side() as s:
        s.orders.region = lambda: FileRegion(ColdFile(records), 0, 0, 1000)
        await s.send(request(FETCH, 1, REGION))
        await s.until(lambda: bool(s.orders.threads.jobs))
        assert records.pins == 2
        s.connection.close("gone")
        assert records.pins == 1
        assert s.connection._socket.fileno() >= 0  # no new connection may be given this number
        s.orders.threads.run()
        assert records.pins == 0
        assert s.connection._socket.fileno() < 0


@on_loop
async def test_a_disk_that_cannot_be_read_ends_the_connection(records: RealFile) -> None:
    async with side() as s:
        s.orders.region = lambda: FileRegion(ColdFile(records), 0, 0, 1000)
        await s.send(request(FETCH, 1, REGION))
        await s.until(lambda: bool(s.orders.threads.jobs))
        s.orders.threads.take("read").run(OSError("bad sector"))
        assert await s.is_cut_off()
        assert records.pins == 0


@on_loop
async def test_records_that_were_cut_off_meanwhile_end_the_connection(records: RealFile) -> None:
    async with side() as s:
        cold = ColdFile(records)
        s.orders.region = lambda: FileRegion(cold, 0, 0, 1000)
        await s.send(request(FETCH, 1, REGION))
        await s.until(lambda: bool(s.orders.threads.jobs))
        cold.generation = 1
        s.orders.threads.run()
        assert await s.is_cut_off()
        assert records.pins == 0


@on_loop
async def test_a_file_that_cannot_be_opened_ends_the_connection(records: RealFile) -> None:
    """And not in the middle of an answer, with a client that waits for the rest for ever."""

    def fail() -> int:
        raise FileNotFoundError("gone")

    async with side() as s:
        cold = ColdFile(records)
        cold.pin = fail  # type: ignore[method-assign]
        s.orders.region = lambda: FileRegion(cold, 0, 0, 1000)
        await s.send(request(FETCH, 1, REGION))
        assert await s.is_cut_off()


@on_loop
async def test_a_late_answer_whose_file_cannot_be_opened_ends_the_connection(
    records: RealFile,
) -> None:
    def fail() -> int:
        raise FileNotFoundError("gone")

    async with side() as s:
        cold = ColdFile(records)
        cold.pin = fail  # type: ignore[method-assign]
        await s.send(request(FETCH, 1, HOLD))
        await s.until(lambda: bool(s.orders.held))
        s.orders.held[1].complete([b"head", FileRegion(cold, 0, 0, 1000)])
        assert await s.is_cut_off()
        assert s.connection.is_closed


@on_loop
async def test_produces_go_on_while_records_are_sent_by_a_thread(records: RealFile) -> None:
    async with side() as s:
        s.orders.region = lambda: FileRegion(ColdFile(records), 0, 0, 1000)
        await s.send(request(FETCH, 1, REGION), request(PRODUCE, 2), request(PRODUCE, 3))
        await s.until(lambda: s.orders.started == [1, 2, 3])
        with pytest.raises(BlockingIOError):
            while not s.client.recv(8).endswith(b"\2"):
                pass
        s.orders.threads.run()
        await read_region(s, records, 1, 1000)
        assert await s.numbers(2) == [2, 3]


@on_loop
async def test_what_waits_for_an_answer_tells_so() -> None:
    async with side() as s:
        assert not s.connection.is_waiting
        await s.send(request(PRODUCE, 1, HOLD))
        await s.until(lambda: bool(s.orders.held))
        assert s.connection.is_waiting
        assert s.connection.is_producing
        s.orders.release(1)
        await s.send(request(FETCH, 2, HOLD))
        await s.until(lambda: 2 in s.orders.held)
        assert s.connection.is_waiting
        assert not s.connection.is_producing


@on_loop
async def test_tiny_frames_that_wait_are_charged_for_what_they_cost() -> None:
    """128 KiB of the smallest frames are megabytes of objects."""
    async with side() as s:
        await s.send(request(FETCH, 1, HOLD))
        await s.until(lambda: bool(s.orders.held))
        frames = [request(METADATA, n) for n in range(2, 5000)]
        await s.send(*frames)
        await s.until(lambda: len(s.connection._backlog) > 1000)
        waiting = len(s.connection._backlog)
        assert s.listener.budget.used_bytes >= KEPT_FRAME_BYTES * waiting
        s.orders.release(1)
        assert await s.numbers(4999) == list(range(1, 5000))
        assert s.listener.budget.used_bytes == 0
        await s.send(request(FETCH, 1, HOLD), *frames)
        await s.until(lambda: len(s.connection._backlog) > 1000)
        s.connection.close("enough")
        assert s.listener.budget.used_bytes == 0


@pytest.mark.parametrize("is_behind", [False, True])
def test_a_fault_of_ours_ends_the_connection_instead_of_a_client_that_waits(
    is_behind: bool,
) -> None:
    @on_loop
    async def test() -> None:
        async with side() as s:
            if is_behind:
                await s.send(request(FETCH, 1, HOLD), request(METADATA, 2))
                await s.until(lambda: bool(s.connection._backlog))

            def fail(number: int) -> None:
                raise RuntimeError("a fault of ours")

            s.orders.on_start = fail
            if is_behind:
                s.orders.release(1)
            else:
                await s.send(request(METADATA, 2))
            assert await s.is_cut_off()
            assert s.listener.budget.used_bytes == 0

    test()
