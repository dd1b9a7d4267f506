"""Where Prometheus reads the broker, and what becomes of a start when somebody else has that place.

What is told: ``tests/conformance/test_observed.py``.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.server.start_error import StartError
from tests.broker.server.running import on_loop, running
from tests.support import generate_docs_grafana, requests


@pytest.fixture
def taken() -> Iterator[str]:
    """An address at which somebody else listens."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield f"127.0.0.1:{other.getsockname()[1]}"


@on_loop
async def test_a_place_that_is_taken_ends_the_start(tmp_path: Path, taken: str) -> None:
    with pytest.raises(StartError) as caught:
        async with running(tmp_path, odradek_metrics_listen=taken):
            pass
    assert str(caught.value) == (
        f"cannot listen on {taken} (odradek.metrics.listen): Address already in use"
    )


@on_loop
async def test_where_figures_are_not_required_a_taken_place_costs_one_line_and_the_broker_serves(
    tmp_path: Path, taken: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"odradek_metrics_listen": taken, "odradek_metrics_required": "false"}
    with caplog.at_level(logging.WARNING):
        async with running(tmp_path, **settings) as r:
            await r.call(requests.create_topic, "orders")
    (line,) = [each.getMessage() for each in caplog.records if taken in each.getMessage()]
    assert line.endswith("Address already in use; this broker's own figures for Prometheus are off")


@on_loop
async def test_figures_that_are_not_required_are_told_where_the_place_is_free(
    tmp_path: Path,
) -> None:
    settings = {"odradek_metrics_listen": "127.0.0.1:0", "odradek_metrics_required": "false"}
    async with running(tmp_path, **settings) as r:
        reader, writer = await asyncio.open_connection("127.0.0.1", r.broker.metrics.port)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert b"kafka_log_logcleaner_deadthreadcount 0\n" in await reader.read()
        writer.close()


@on_loop
async def test_the_panels_for_grafana_ask_for_what_is_told(tmp_path: Path) -> None:
    settings = {"odradek_metrics_listen": "127.0.0.1:0"}
    async with running(tmp_path, **settings) as r:
        reader, writer = await asyncio.open_connection("127.0.0.1", r.broker.metrics.port)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        told = set(re.findall(r"^# TYPE (\S+)", (await reader.read()).decode(), re.MULTILINE))
        writer.close()
    dashboard = importlib.util.find_spec("dashboard.metrics")
    assert dashboard is not None
    assert dashboard.origin is not None
    told |= set(re.findall(r'"((?:kafka|odradek)_\w+)"', Path(dashboard.origin).read_text()))
    asked = {name.removesuffix("_bucket") for name in generate_docs_grafana.names()}
    assert asked - told == set()


@on_loop
async def test_partitions_are_counted_again_when_topics_came_and_went(tmp_path: Path) -> None:
    async with running(tmp_path, odradek_metrics_listen="127.0.0.1:0") as r:

        async def partitions() -> list[bytes]:
            reader, writer = await asyncio.open_connection("127.0.0.1", r.broker.metrics.port)
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            names = rb"^kafka_server_replicamanager_(?:partition|underminisrpartition)count (\d+)$"
            try:
                return re.findall(names, await reader.read(), re.MULTILINE)
            finally:
                writer.close()

        assert await partitions() == [b"0", b"0"]
        await r.call(requests.create_topic, "orders", partitions=3)
        assert await partitions() == [b"3", b"0"]
        assert await partitions() == [b"3", b"0"]  # of the same image
        await r.call(requests.create_topic, "strict", configs={"min.insync.replicas": "2"})
        assert await partitions() == [b"4", b"1"]
