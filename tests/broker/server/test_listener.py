"""Accepting: limits for all listeners together, descriptors, idle clients, what clients are told."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from broker.server import listener as listener_module
from broker.server.listener import ACCEPTS_PER_TURN
from broker.server.quota import (
    MAX_FILE_DESCRIPTORS,
    RESERVED_DESCRIPTORS,
    ConnectionQuota,
    file_descriptors,
)
from tests.broker.server.running import Running, on_loop, running
from tests.support import requests
from tests.support.wire import ConnectionClosed, Wire


async def connect(r: Running) -> socket.socket:
    """A connection that the broker has accepted or refused."""
    client = await asyncio.to_thread(socket.create_connection, r.address)
    client.setblocking(False)
    return client


async def is_refused(r: Running) -> bool:
    """Whether a newcomer loses its connection at once instead of being answered."""

    def ask() -> bool:
        with Wire(r.address, timeout=30) as wire:
            try:
                wire.request("metadata", 9, topics=[])
            except (OSError, ConnectionClosed):
                return True
            return False

    return await asyncio.to_thread(ask)


@on_loop
async def test_connections_are_limited_over_all_listeners(tmp_path: Path) -> None:
    async with running(
        tmp_path,
        listeners="PLAINTEXT://127.0.0.1:0,OTHER://127.0.0.1:0",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT",
        max_connections="3",
    ) as r:
        first, second = (("127.0.0.1", listener.port) for listener in r.broker.listeners)
        kept = [
            await asyncio.to_thread(socket.create_connection, address)
            for address in (first, second, first)
        ]
        await r.until(lambda: r.broker.quota.count == 3)
        for address in (first, second):
            surplus = await asyncio.to_thread(socket.create_connection, address)
            assert await asyncio.to_thread(surplus.recv, 1) == b""
            surplus.close()
        assert r.broker.quota.refused_count == 2
        kept.pop().close()
        await r.until(lambda: r.broker.quota.count == 2)
        assert not await is_refused(r)
        for each in kept:
            each.close()


@on_loop
async def test_one_address_may_have_so_many_connections(tmp_path: Path) -> None:
    async with running(
        tmp_path, max_connections_per_ip="5", max_connections_per_ip_overrides="127.0.0.1:2"
    ) as r:
        kept = [await connect(r) for _ in range(2)]
        await r.until(lambda: r.broker.quota.count == 2)
        assert await is_refused(r)
        for each in kept:
            each.close()
        await r.until(lambda: r.broker.quota.count == 0)
        assert not await is_refused(r)


@on_loop
async def test_refusals_are_logged_once_a_tick(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, max_connections_per_ip="1") as r:
        kept = await connect(r)
        await r.until(lambda: r.broker.quota.count == 1)
        for _ in range(20):
            assert await is_refused(r)
        lines = [line for line in caplog.messages if "max.connections.per.ip" in line]
        assert 1 <= len(lines) < 20
        assert r.broker.quota.refused_count == 20
        kept.close()


def quota(limit: int, **config: Any) -> ConnectionQuota:
    given = {
        "max_connections": 1 << 31,
        "max_connections_per_ip": 1 << 31,
        "max_connections_per_ip_overrides": {},
        **config,
    }
    return ConnectionQuota(lambda: type("Config", (), given), limit)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("limit", [256, 1024, 4096, 20_000])
def test_connections_leave_descriptors_to_the_logs(limit: int) -> None:
    found = quota(limit)
    while found.why_refused("10.0.0.1") is None and found.count < limit:
        found.add("10.0.0.1")
    assert found.count + file_descriptors(limit) + RESERVED_DESCRIPTORS <= max(limit, 257)
    assert found.count >= 1
    assert file_descriptors(limit) <= MAX_FILE_DESCRIPTORS


def test_addresses_without_connections_are_forgotten() -> None:
    found = quota(10_000)
    for number in range(1000):
        found.add(f"10.0.0.{number}")
        found.remove(f"10.0.0.{number}")
    assert found.count == 0
    assert len(found._per_address) == 0


@on_loop
async def test_accepting_pauses_while_there_are_no_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "EMFILE_PAUSE_SECONDS", 0.01)
    async with running(tmp_path) as r:
        (listening,) = r.broker.listeners
        attempts = 0
        known = listening._socket

        class Exhausted:
            def accept(self) -> Any:
                nonlocal attempts
                attempts += 1
                if attempts <= 3:
                    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
                return known.accept()

            def __getattr__(self, name: str) -> Any:
                return getattr(known, name)

        listening._socket = Exhausted()  # type: ignore[assignment]
        assert not await is_refused(r)
        assert attempts >= 4


@on_loop
async def test_a_listener_that_was_closed_while_it_paused_stays_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as r:
        (listening,) = r.broker.listeners
        listening._on_accept_failed(OSError(errno.EMFILE, "too many"))
        listening.stop_accepting()
        listening._resume()
        assert listening._socket.fileno() < 0


@on_loop
async def test_idle_connections_are_closed_and_those_that_wait_are_not(tmp_path: Path) -> None:
    async with running(tmp_path, connections_max_idle_ms="10000") as r:
        (listening,) = r.broker.listeners
        await r.call(requests.create_topic, "idle")
        idle = await connect(r)
        polling = asyncio.ensure_future(r.call(long_poll))
        await r.until(lambda: any(each.is_waiting for each in listening.connections))
        now_ms = r.broker.clock.monotonic_ms()
        listening.tick(now_ms + 9_000)
        assert any(not each.is_waiting for each in listening.connections)
        listening.tick(now_ms + 11_000)
        assert all(each.is_waiting for each in listening.connections)
        assert listening.connections
        assert await asyncio.get_running_loop().sock_recv(idle, 1) == b""
        idle.close()
        for each in tuple(listening.connections):
            each.close(None)
        with pytest.raises(ConnectionClosed):
            await polling


def long_poll(wire: Wire) -> Any:
    return wire.request("fetch", 11, **requests.fetch_fields("idle", {0: 0}, max_wait=60_000))


@on_loop
async def test_clients_are_told_the_address_that_they_reached(tmp_path: Path) -> None:
    async with running(tmp_path, listeners="PLAINTEXT://0.0.0.0:0") as r:
        port = r.broker.listeners[0].port
        for host in ("127.0.0.1", "127.0.0.2"):

            def ask(host: str = host) -> Any:
                with Wire((host, port)) as wire:
                    return wire.request("metadata", 9, topics=[])

            (node,) = (await asyncio.to_thread(ask)).brokers
            assert (node.host, node.port) == (host, port)


@on_loop
async def test_clients_are_told_what_is_advertised(tmp_path: Path) -> None:
    async with running(tmp_path, advertised_listeners="PLAINTEXT://kafka.example:1234") as r:
        (node,) = (await r.request("metadata", 9, topics=[])).brokers
        assert (node.host, node.port) == ("kafka.example", 1234)


@on_loop
async def test_accepted_sockets_notice_a_peer_that_is_gone(tmp_path: Path) -> None:
    async with running(tmp_path) as r:
        client = await connect(r)
        (listening,) = r.broker.listeners
        await r.until(lambda: bool(listening.connections))
        (connection,) = listening.connections
        assert connection._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert connection._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        client.close()


@on_loop
async def test_one_turn_accepts_so_many_and_no_more(tmp_path: Path) -> None:
    """And those that come together are all queued: a first packet that is dropped costs a second."""
    async with running(tmp_path) as r:
        (listening,) = r.broker.listeners
        count = 3 * ACCEPTS_PER_TURN
        clients = [socket.create_connection(r.address, timeout=0.9) for _ in range(count)]
        listening._on_acceptable()
        assert len(listening.connections) == ACCEPTS_PER_TURN
        await r.until(lambda: len(listening.connections) == len(clients))
        for each in clients:
            each.close()


@on_loop
async def test_a_chosen_backlog_bounds_the_queue(tmp_path: Path) -> None:
    async with running(tmp_path, socket_listen_backlog_size="1") as r:
        clients = []
        with pytest.raises(TimeoutError):
            for _ in range(10):
                clients.append(socket.create_connection(r.address, timeout=0.5))
        assert 1 <= len(clients) <= 3
        for each in clients:
            each.close()
