"""The live tail with many viewers: frames, latency, counters, and what they cost the broker's clients.

    python -m tests.bench.web_tail [--viewers 200] [--rate 10000] [--seconds 60] [--rounds 3]

A broker of ours, the web process beside it, a topic at a fixed rate of records of 100 B. Rounds with
viewers alternate with rounds without; each viewer is a WebSocket client in a process of its own that
answers every frame; how old a record is in its frame is told as long as records come. At the end everything that a viewer was told has to add up to the offsets that
the topic moved by. Then viewers that never read: by how much the web process grows. The bars are
those of the plan.
"""

import argparse
import asyncio
import json
import re
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from dashboard.gateway import Gateway
from tests.bench import generator
from tests.support import processes
from tests.support.odradek import OdradekBroker
from tests.support.web import AS_SHIPPED, WebProcess
from tests.support.websocket import CLOSE, PING, PONG, TEXT

BAR_FRAMES = 5.0
BAR_ROWS = 300.0
BAR_LATENCY_MS = 500.0
BAR_PRODUCE = 1.5
BAR_GROWTH_MB = 50.0
SLEEPERS = 20
RECORDS_PER_REQUEST = 10
TOPIC = "tailed"
HEAD = re.compile(rb'"seq":(\d+),"run":(\d+),"sent":"(\d+)"')
COUNTERS = re.compile(rb'"counters":(\{[^{}]*\}|\{.*?\}\}\})')
STARTS = re.compile(rb'"starts":(\{.*?\}\})')


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--viewers", type=int, default=200)
    parser.add_argument("--rate", type=int, default=10_000, help="records/s")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--as-viewers", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_viewers:
        return asyncio.run(view(json.loads(options.as_viewers)))
    generator.binary()
    with tempfile.TemporaryDirectory(prefix="odradek-web-tail-") as name:
        directory = Path(name)
        with (
            OdradekBroker(directory) as broker,
            WebProcess(directory, broker.bootstrap, AS_SHIPPED, data=broker.data) as web,
        ):
            return run(broker, web, options)


def run(broker: OdradekBroker, web: WebProcess, options: argparse.Namespace) -> int:
    gateway = Gateway(broker.bootstrap, timeout_s=30)
    gateway.check()
    # The broker's time: the generator makes its batches once.
    configs = {"message.timestamp.type": "LogAppendTime"}
    assert not any(gateway.create_topics([TOPIC], partitions=1, configs=configs).values())
    load(broker, options.rate, 3)  # Whatever happens only once happens here.
    alone, watched, results = [], [], []
    for number in range(1, options.rounds + 1):
        alone.append(load(broker, options.rate, options.seconds)["latency_ms"]["p99"])
        say(f"round {number}, 0 viewers: produce p99 {alone[-1]:.2f} ms")
        result = with_viewers(broker, web, options)
        results.append(result)
        watched.append(result["produce_p99_ms"])
        say(f"round {number}, {options.viewers} viewers: {in_words(result)}")
    growth_mb = with_sleepers(broker, web, options)
    ratio = statistics.median(watched) / statistics.median(alone)
    bars = {
        f"every viewer at least {BAR_FRAMES} frames/s": min(
            r["least_frames_per_s"] for r in results
        )
        >= BAR_FRAMES,
        f"every viewer at least {BAR_ROWS} rows/s": min(r["least_rows_per_s"] for r in results)
        >= BAR_ROWS,
        "shown + skipped = received = offsets": all(r["wrong"] == 0 for r in results),
        f"from a record's append to its frame, p99 under {BAR_LATENCY_MS} ms": max(
            r["age_p99_ms"] for r in results
        )
        < BAR_LATENCY_MS,
        f"produce p99 within {BAR_PRODUCE}x (median of rounds: {ratio:.2f}x)": ratio <= BAR_PRODUCE,
        f"{SLEEPERS} viewers that never read: +{growth_mb:.1f} MB, under {BAR_GROWTH_MB} MB": growth_mb
        < BAR_GROWTH_MB,
    }
    for words, holds in bars.items():
        say(f"{'holds' if holds else 'DOES NOT HOLD'}: {words}")
    return 0 if all(bars.values()) else 1


def in_words(result: dict[str, Any]) -> str:
    return (
        f"frames/s {result['least_frames_per_s']:.1f} at least, rows/s"
        f" {result['least_rows_per_s']:.0f} at least, frame latency p50"
        f" {result['latency_p50_ms']:.0f} p99 {result['latency_p99_ms']:.0f} ms,"
        f" newest record to frame p99 {result['age_p99_ms']:.0f} ms,"
        f" {result['wrong']} viewers whose counters are wrong,"
        f" produce p99 {result['produce_p99_ms']:.2f} ms, web process {result['web_cpu']:.0%} of a core,"
        f" {result['web_mb']:.0f} MB"
    )


def load(broker: OdradekBroker, rate: int, seconds: int) -> dict[str, Any]:
    per_second = rate / RECORDS_PER_REQUEST
    arguments = ("-topic", TOPIC, "-recs", RECORDS_PER_REQUEST, "-rate", per_second)
    return generator.run(broker.address, "produce", *arguments, "-seconds", seconds)


def with_viewers(
    broker: OdradekBroker, web: WebProcess, options: argparse.Namespace
) -> dict[str, Any]:
    plan = {
        "port": web.port,
        "cookie": f"{web.cookie_name}={web.sessions['ada']}",
        "count": options.viewers,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.web_tail", "--as-viewers", json.dumps(plan)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        cpu = processes.cpu_seconds(web.pid)
        made = load(broker, options.rate, options.seconds)
        cpu = processes.cpu_seconds(web.pid) - cpu
        output, _ = process.communicate("stop\n", timeout=120)
    finally:
        process.kill()
        process.wait()
    result: dict[str, Any] = json.loads(output)
    result["produce_p99_ms"] = made["latency_ms"]["p99"]
    result["web_cpu"] = cpu / options.seconds
    result["web_mb"] = processes.status_kib(web.pid, "VmRSS") / 1024
    result["wrong"] += sum(received != made["records"] for received in result["received"])
    return result


def with_sleepers(broker: OdradekBroker, web: WebProcess, options: argparse.Namespace) -> float:
    """Megabytes by which the web process grows."""
    reader = sleeping_socket(web)
    load(broker, options.rate, 3)
    before = processes.status_kib(web.pid, "VmRSS")
    sleepers = [sleeping_socket(web) for _ in range(SLEEPERS)]
    load(broker, options.rate, min(options.seconds, 20))
    grown = (processes.status_kib(web.pid, "VmRSS") - before) / 1024
    for one in (reader, *sleepers):
        one.close()
    return grown


def sleeping_socket(web: WebProcess) -> socket.socket:
    """Asks for the topic and never reads a byte more than the handshake."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(("127.0.0.1", web.port))
    made.sendall(handshake(web.port, f"{web.cookie_name}={web.sessions['ada']}"))
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += made.recv(1)
    assert answer.startswith(b"HTTP/1.1 101"), answer
    made.sendall(masked(START))
    return made


# The viewers' process

START = json.dumps({"type": "start", "topics": [TOPIC], "filter": "", "last": 0}).encode()


def handshake(port: int, cookie: str) -> bytes:
    return (
        f"GET /tail/socket/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        f"Origin: http://127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
        f"Cookie: {cookie}\r\n\r\n"
    ).encode()


def masked(data: bytes, opcode: int = TEXT) -> bytes:
    assert len(data) < 126
    return struct.pack("!BB4x", 0x80 | opcode, 0x80 | len(data)) + data


class Viewer(asyncio.Protocol):
    """Counts frames and rows without decoding what it need not."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.buffer = bytearray()
        self.is_open = False
        self.started = asyncio.Event()
        self.first_frame = self.last_frame = 0.0
        self.frames = self.rows = 0
        self.latencies: list[float] = []
        self.ages: list[tuple[float, float]] = []
        """When a frame came, and how old its newest record was then."""
        self.starts: dict[str, Any] = {}
        self.counters: dict[str, Any] = {}
        self.wrong = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(handshake(self.plan["port"], self.plan["cookie"]))

    def data_received(self, data: bytes) -> None:
        buffer = self.buffer
        buffer += data
        if not self.is_open:
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            assert buffer.startswith(b"HTTP/1.1 101"), bytes(buffer)
            del buffer[: end + 4]
            self.is_open = True
            self.transport.write(masked(START))
        while (frame := self._cut()) is not None:
            self._take(*frame)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.started.is_set():
            raise SystemExit(f"a viewer was refused: {error}")

    def _cut(self) -> tuple[int, bytes] | None:
        buffer = self.buffer
        if len(buffer) < 2:
            return None
        size, at = buffer[1], 2
        if size >= 126:
            at = 4 if size == 126 else 10
            if len(buffer) < at:
                return None
            size = int.from_bytes(buffer[2:at], "big")
        if len(buffer) < at + size:
            return None
        opcode, data = buffer[0] & 15, bytes(buffer[at : at + size])
        del buffer[: at + size]
        return opcode, data

    def _take(self, opcode: int, data: bytes) -> None:
        if opcode == PING:
            self.transport.write(masked(data, PONG))
        elif opcode == CLOSE:
            raise SystemExit(f"the server closed: {data!r}")
        if opcode != TEXT:
            return
        now_ms = time.time() * 1000
        head = HEAD.search(data[:100])
        assert head is not None
        self.transport.write(masked(b'{"type":"ack","seq":%s}' % head[1]))
        if int(head[2]) < 1:
            return
        if found := STARTS.search(data[:3000]):
            self.starts = json.loads(found[1])
            self.started.set()
        if found := COUNTERS.search(data[:3000]):
            self.counters = json.loads(found[1])
            total = int(self.counters["shown"]) + int(self.counters["skipped"])
            self.wrong += total != int(self.counters["received"])
        if rows := data.count(b'"partition":'):
            self.rows += rows
            self.frames += 1
            self.last_frame = time.monotonic()
            self.first_frame = self.first_frame or self.last_frame
            self.latencies.append(now_ms - int(head[3]))
            newest = data.rfind(b'"time":"') + 8
            self.ages.append((now_ms, now_ms - int(data[newest : data.index(b'"', newest)])))

    def has_everything(self, end: int) -> bool:
        offsets = self.counters.get("offsets", {}).get(TOPIC, {})
        return offsets.get("0") == str(end)

    def is_wrong(self) -> bool:
        passed = int(self.counters["offsets"][TOPIC]["0"]) - int(self.starts[TOPIC]["0"])
        received = int(self.counters["received"]) + int(self.counters["holes"])
        return bool(self.wrong) or received != passed or int(self.counters["shown"]) != self.rows


async def view(plan: dict[str, Any]) -> int:
    loop = asyncio.get_running_loop()
    viewers = []
    for _ in range(plan["count"]):
        _, viewer = await loop.create_connection(lambda: Viewer(plan), "127.0.0.1", plan["port"])
        viewers.append(viewer)
    async with asyncio.timeout(60):
        for viewer in viewers:
            await viewer.started.wait()
    say("ready")
    await asyncio.to_thread(sys.stdin.readline)
    async with asyncio.timeout(60):
        # Those who have it all say where the topic ends.
        while True:
            ends = {one.counters.get("offsets", {}).get(TOPIC, {}).get("0") for one in viewers}
            if len(ends) == 1 and None not in ends:
                break
            await asyncio.sleep(0.1)
    spans = [max(one.last_frame - one.first_frame, 0.001) for one in viewers]
    latencies = sorted(latency for one in viewers for latency in one.latencies)
    # After the last record each viewer still gets what the ring holds, the older the longer.
    end_ms = max(at - age for one in viewers for at, age in one.ages)
    ages = sorted(age for one in viewers for at, age in one.ages if at <= end_ms)
    say(
        json.dumps(
            {
                "least_frames_per_s": min(
                    one.frames / s for one, s in zip(viewers, spans, strict=True)
                ),
                "least_rows_per_s": min(
                    one.rows / s for one, s in zip(viewers, spans, strict=True)
                ),
                "latency_p50_ms": latencies[len(latencies) // 2],
                "latency_p99_ms": latencies[len(latencies) * 99 // 100],
                "age_p99_ms": ages[len(ages) * 99 // 100],
                "wrong": sum(one.is_wrong() for one in viewers),
                "received": [int(one.counters["received"]) for one in viewers],
            }
        )
    )
    return 0


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
