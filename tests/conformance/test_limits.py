"""Clients that read slowly, never, or hang about: the broker's memory has a bound."""

import contextlib
import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support import processes, requests
from tests.support.odradek import OdradekBroker
from tests.support.record_batches import batch
from tests.support.requests import create_topic, fetch_fields, now_ms, produce_values
from tests.support.wire import Wire, encode_request

MIB = 1 << 20
IDLE_COUNT = 5000


@pytest.fixture
def filled(odradek_broker: OdradekBroker) -> Iterator[tuple[OdradekBroker, str]]:
    """A broker with a topic of 32 MiB."""
    with Wire(odradek_broker.address) as wire:
        name = create_topic(wire)
        for _ in range(64):
            produce_values(wire, name, [b"x" * (MIB // 2)])
        yield odradek_broker, name


def connect_small(broker: OdradekBroker) -> socket.socket:
    """A connection whose receive buffer is soon full."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(broker.address)
    connection.setblocking(False)
    return connection


def push(connection: socket.socket, data: bytes) -> None:
    """Send as much as goes without waiting."""
    with contextlib.suppress(BlockingIOError, ConnectionError):
        connection.sendall(data)


def test_clients_that_never_read_cost_little_memory(filled: tuple[OdradekBroker, str]) -> None:
    broker, name = filled
    fetch = encode_request("fetch", 11, 1, **fetch_fields(name, {0: 0}, partition_max_bytes=MIB))
    metadata = encode_request("metadata", 9, 2, topics=None)
    with Wire(broker.address) as wire:
        wire.request("metadata", 9, topics=[])
        before = broker.anonymous_kib()
        silent = [connect_small(broker) for _ in range(50)]
        try:
            for connection in silent:
                push(connection, fetch * 200 + metadata * 200)
            end = time.monotonic() + 3
            while time.monotonic() < end:
                assert wire.request("metadata", 9, topics=[]).brokers
                time.sleep(0.05)
            # Asked for: 50 x 200 MiB. Kept: not much more than a buffer for each.
            assert broker.anonymous_kib() - before < 64 * 1024
        finally:
            for connection in silent:
                connection.close()
        processes.wait_until(
            lambda: broker.anonymous_kib() - before < 32 * 1024, 30, "the memory back"
        )


def test_a_client_that_writes_and_never_reads_is_held_back(
    filled: tuple[OdradekBroker, str],
) -> None:
    broker, name = filled
    data = batch([b"x" * 1000], timestamp=now_ms())
    produce = encode_request("produce", 9, 1, **requests.produce_fields(name, 0, data))
    with Wire(broker.address) as wire:
        before = broker.anonymous_kib()
        silent = [connect_small(broker) for _ in range(20)]
        try:
            for _ in range(30):
                for connection in silent:
                    push(connection, produce * 50)
                assert wire.request("metadata", 9, topics=[]).brokers
            assert broker.anonymous_kib() - before < 64 * 1024
        finally:
            for connection in silent:
                connection.close()


def test_a_slow_reader_gets_everything_in_the_end(filled: tuple[OdradekBroker, str]) -> None:
    broker, name = filled
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    connection.connect(broker.address)
    connection.settimeout(30)
    try:
        connection.sendall(
            encode_request(
                "fetch", 11, 1, **fetch_fields(name, {0: 0}, partition_max_bytes=8 * MIB)
            )
        )
        (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        received = 0
        with Wire(broker.address) as wire:
            while received < size:
                received += len(connection.recv(min(65536, size - received)))
                if received % 10 == 0:
                    produce_values(wire, name, [b"meanwhile"])
        assert 7 * MIB < size < 9 * MIB
    finally:
        connection.close()


def test_frames_that_arrive_by_halves_share_a_bound(odradek_broker: OdradekBroker) -> None:
    with Wire(odradek_broker.address) as wire:
        name = create_topic(wire)
        before = odradek_broker.anonymous_kib()
        halves = []
        try:
            for _ in range(100):
                connection = socket.create_connection(odradek_broker.address)
                connection.setblocking(False)
                # 90 MB are announced, one megabyte comes.
                push(connection, struct.pack(">i", 90_000_000) + b"\0" * MIB)
                halves.append(connection)
            for turn in range(20):
                assert produce_values(wire, name, [b"v"]) == turn
                time.sleep(0.05)
            assert odradek_broker.anonymous_kib() - before < 200 * 1024
        finally:
            for connection in halves:
                connection.close()
        processes.wait_until(
            lambda: odradek_broker.anonymous_kib() - before < 64 * 1024, 30, "the memory back"
        )
        assert produce_values(wire, name, [b"v"]) == 20


def test_thousands_of_idle_connections(start_odradek: Callable[..., OdradekBroker]) -> None:
    odradek_broker = start_odradek({"socket.listen.backlog.size": "4096"})
    with Wire(odradek_broker.address) as wire:
        name = create_topic(wire)
        ask = encode_request("metadata", 9, 1, topics=[])
        before = odradek_broker.anonymous_kib()
        idle: list[socket.socket] = []
        try:
            for _ in range(IDLE_COUNT):
                connection = socket.create_connection(odradek_broker.address)
                idle.append(connection)
            for connection in idle[::10]:
                connection.sendall(ask)
            for connection in idle[::10]:
                (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
                assert len(connection.recv(size, socket.MSG_WAITALL)) == size
            grown = odradek_broker.anonymous_kib() - before
            assert grown < 12 * IDLE_COUNT, f"{grown / IDLE_COUNT:.1f} KiB a connection"
            for turn in range(20):
                assert produce_values(wire, name, [b"v"]) == turn
            cpu = odradek_broker.cpu_seconds()
            time.sleep(1)
            assert odradek_broker.cpu_seconds() - cpu < 0.3
        finally:
            for connection in idle:
                connection.close()
        processes.wait_until(
            lambda: odradek_broker.descriptor_count() < 200, 60, "the descriptors back"
        )


def test_a_half_open_connection_is_closed_when_idle(
    start_odradek: Callable[..., OdradekBroker],
) -> None:
    broker = start_odradek({"connections.max.idle.ms": "700"})
    half = socket.create_connection(broker.address)
    try:
        half.sendall(struct.pack(">i", 100) + b"\0" * 10)  # and never the rest
        half.settimeout(20)
        assert half.recv(1) == b""
    finally:
        half.close()


def test_more_connections_than_allowed_are_turned_away(
    start_odradek: Callable[..., OdradekBroker],
) -> None:
    broker = start_odradek({"max.connections.per.ip": "10"})
    kept: list[Wire] = []
    try:
        for _ in range(10):
            wire = Wire(broker.address)
            kept.append(wire)
            assert wire.request("metadata", 9, topics=[]).brokers
        with Wire(broker.address, timeout=10) as surplus:
            assert surplus.is_closed_by_peer()
        kept.pop().close()
        assert kept[0].request("metadata", 9, topics=[]).brokers
        processes.wait_until(lambda: _is_served(broker), 20, "room for another")
    finally:
        for wire in kept:
            wire.close()


def _is_served(broker: OdradekBroker) -> bool:
    try:
        with Wire(broker.address, timeout=5) as wire:
            return bool(wire.request("metadata", 9, topics=[]).brokers)
    except Exception:
        return False


def test_a_closed_writer_side_still_gets_its_answer(odradek_broker: OdradekBroker) -> None:
    with Wire(odradek_broker.address) as wire:
        wire.socket.sendall(encode_request("metadata", 9, 3, topics=[]))
        wire.socket.shutdown(socket.SHUT_WR)
        with contextlib.suppress(Exception):
            assert wire.receive_frame()[:4] == struct.pack(">i", 3)
        assert wire.is_closed_by_peer()
