"""Records on pages, hostile, large and many.

    python -m tests.bench.web_messages [part …] [--seconds 60] [--mb 1024]

- hostile: two people search with `(a+)+$` and worse through hostile values; every other page meanwhile.
- large: a message of 200 MB listed, opened, shown as far as it is, downloaded by a slow reader.
- export: 1 GB exported by the job and read at 100 KB/s; how much the web process grows.
- speed: records a second of a scan, by the dashboard's reader and by aiokafka.
"""

import argparse
import asyncio
import contextlib
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx

from broker.model.ids import TopicPartition
from dashboard.gateway import Gateway
from tests.bench.web_visits import Verdict, in_words, p95, say
from tests.support import processes
from tests.support.odradek import OdradekBroker
from tests.support.web import AS_SHIPPED, WebProcess, post

PAGE_BAR_MS = 200
GROWTH_BAR_MB = 30
SLOW_BYTES_S = 100_000
LARGE_BYTES = 200 * 1024 * 1024
BROKER_SETTINGS = {
    "message.max.bytes": str(LARGE_BYTES + 1_000_000),
    "socket.request.max.bytes": str(LARGE_BYTES + 10_000_000),
}
# The worst for a backtracking engine, and the worst that a linear one allows.
EXPRESSIONS = (
    "value.matches('(a+)+$')",
    "value.matches('(a|a)*b(a|a)*c$') || json.all(x, json.exists(y, x == y))",
)
RUN_EXPORT = """
import sys
from dashboard.models import JobRun
from dashboard.jobs import export
class Context:
    def __init__(self, run):
        self.run_id, self.target, self.parameters = run.pk, run.target, run.parameters
    def progress(self, done, total=None, text=""):
        pass
run = JobRun.objects.get(pk=int(sys.argv[1]))
run.result = export.run(Context(run))
run.state = JobRun.State.OK
run.save()
print(run.result)
"""


class Watch:
    """The largest resident size of a process while something happens."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._end = threading.Event()
        self.first_kib = self.most_kib = processes.status_kib(pid, "VmRSS")
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self) -> None:
        while not self._end.wait(0.02):
            self.most_kib = max(self.most_kib, processes.status_kib(self._pid, "VmRSS"))

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    @property
    def growth_mb(self) -> float:
        return (self.most_kib - self.first_kib) / 1024


def read_slowly(client: httpx.Client, path: str, seconds: float, whole: int) -> str:
    """Of a reader that takes SLOW_BYTES_S of a file that has at least ``whole`` bytes."""
    taken = 0
    start = time.perf_counter()
    with client.stream("GET", path) as answer:
        assert answer.status_code == 200, answer.status_code
        size = int(answer.headers["content-length"])
        assert size >= whole, f"{size} bytes are no {whole}"
        for piece in answer.iter_raw(SLOW_BYTES_S // 10):
            taken += len(piece)
            time.sleep(max(0.0, start + taken / SLOW_BYTES_S - time.perf_counter()))
            if time.perf_counter() - start > seconds:
                break
    assert taken >= SLOW_BYTES_S * seconds * 0.9, "the reader was kept waiting"
    return f"{taken:,} of {size:,} bytes read in {seconds:.0f} s"


def grew(verdict: Verdict, what: str, watch: "Watch", more: str = "") -> None:
    verdict.judge(
        what,
        f"the web process grew by {watch.growth_mb:.1f} MB{', ' + more if more else ''}",
        f"under {GROWTH_BAR_MB} MB",
        holds=watch.growth_mb < GROWTH_BAR_MB,
    )


def warm(web: WebProcess, client: httpx.Client, paths: tuple[str, ...]) -> None:
    """What a page needs once (templates, connections) is no growth."""
    for _ in range(20):
        for path in paths:
            client.get(path)


def hostile(
    web: WebProcess, gateway: Gateway, verdict: Verdict, options: argparse.Namespace
) -> None:
    gateway.create_topics(["hostile"], partitions=2)
    writer = gateway.writer("hostile")
    for number in range(3_000):
        value = b"a" * 20_000 + b"!" if number % 2 else b"[" + b"1," * 300 + b"2]"
        writer.send(number, value, partition=number % 2)
    writer.flush(60)
    client = web.client()
    pages = ("/", "/topics/", "/topics/hostile/", "/groups/", "/exports/", "/account/password/")
    warm(web, client, pages)
    is_over = threading.Event()
    polls = dict.fromkeys(EXPRESSIONS, 0)

    def search(user: str, expression: str) -> None:
        person = web.client(user)
        query = {"filter": expression, "seconds": "120", "records": "50000000", "mib": "50000"}
        while not is_over.is_set():
            page = person.get("/topics/hostile/messages/", params=query).text
            while 'hx-trigger="load' in page and not is_over.is_set():
                time.sleep(0.4)
                at = page.index('hx-get="', page.index('id="scan-status"')) + 8
                polls[expression] += 1
                page = person.get(page[at : page.index('"', at)].replace("&amp;", "&")).text

    threads = [
        threading.Thread(target=search, args=pair, daemon=True)
        for pair in zip(("olga", "vera"), EXPRESSIONS, strict=True)
    ]
    for thread in threads:
        thread.start()
    time.sleep(2)
    taken: dict[str, list[float]] = {page: [] for page in pages}
    end = time.perf_counter() + options.seconds / 2
    while time.perf_counter() < end:
        for page in pages:
            start = time.perf_counter()
            assert client.get(page).status_code == 200, page
            taken[page].append((time.perf_counter() - start) * 1000)
    is_over.set()
    assert all(polls.values()), "a search was over before anybody looked"
    for page, times in taken.items():
        verdict.judge(
            f"{page} beside two hostile searches",
            in_words(times),
            f"p95 under {PAGE_BAR_MS} ms",
            holds=p95(times) < PAGE_BAR_MS,
        )
    for thread in threads:
        thread.join(30)


def large(web: WebProcess, gateway: Gateway, verdict: Verdict, options: argparse.Namespace) -> None:
    gateway.create_topics(
        ["large"], partitions=1, configs={"max.message.bytes": BROKER_SETTINGS["message.max.bytes"]}
    )
    writer = gateway.writer("large", **{"request.timeout.ms": 120_000})
    writer.send(0, b"small")
    writer.send(1, b"x" * LARGE_BYTES)
    writer.send(2, b"small too")
    left = writer.flush(120)
    assert not left, "the broker did not take the large message"
    assert not writer.failures, writer.failures
    client = web.client()
    client.timeout = 180
    warm(web, client, ("/topics/large/0/0/", "/topics/large/messages/?start=offset&at=2"))
    for what, path in (
        ("listed", "/topics/large/messages/"),
        ("its page", "/topics/large/0/1/"),
        ("shown as far as it is", "/topics/large/0/1/?all=1"),
        ("as hex", "/topics/large/0/1/?all=1&view=hex"),
    ):
        with Watch(web.pid) as watch:
            start = time.perf_counter()
            answer = client.get(path)
            seconds = time.perf_counter() - start
        assert answer.status_code == 200, (path, answer.status_code)
        grew(verdict, f"200 MB message, {what}", watch,
             f"{seconds:.1f} s, a page of {len(answer.content):,} bytes")  # fmt: skip
    with Watch(web.pid) as watch:
        read = read_slowly(client, "/topics/large/0/1/raw/", options.seconds, LARGE_BYTES)
    grew(verdict, "200 MB message, slow download", watch, read)
    with Watch(web.pid) as watch:
        start = time.perf_counter()
        count = 0
        with client.stream("GET", "/topics/large/0/1/raw/") as answer:
            for piece in answer.iter_raw():
                count += len(piece)
        seconds = time.perf_counter() - start
    assert count == LARGE_BYTES, count
    grew(verdict, "200 MB message, fast download", watch, f"whole in {seconds:.1f} s")


def export(
    web: WebProcess, gateway: Gateway, verdict: Verdict, options: argparse.Namespace
) -> None:
    export_bytes = options.mb * 1024**2
    gateway.create_topics(["much"], partitions=3)
    writer = gateway.writer("much")
    value = json.dumps({"pad": "x" * 8_000}).encode()
    for number in range(export_bytes // len(value)):
        writer.send(number, value, partition=number % 3)
    assert not writer.flush(120)
    client = web.client()
    answer = post(client, "/topics/much/messages/~export/", {"format": "ndjson"})
    assert "much" in answer.text, answer.status_code
    start = time.perf_counter()
    result = web.run_python(RUN_EXPORT, "1", timeout=400).strip()
    say(f"     {options.mb} MB exported in {time.perf_counter() - start:.0f} s: {result}")
    warm(web, client, ("/exports/",))
    with Watch(web.pid) as watch:
        read = read_slowly(client, "/exports/1/file/", options.seconds, export_bytes)
    grew(verdict, f"{options.mb} MB export, slow download", watch, read)
    with Watch(web.pid) as watch, contextlib.ExitStack() as stack:
        readers = [stack.enter_context(web.client()) for _ in range(20)]
        answers = [stack.enter_context(one.stream("GET", "/exports/1/file/")) for one in readers]
        for answer in answers:
            next(answer.iter_raw(1_000))
        time.sleep(10)
    grew(verdict, "20 readers of it that stop reading", watch)


def speed(web: WebProcess, gateway: Gateway, verdict: Verdict, options: argparse.Namespace) -> None:
    count = 300_000
    gateway.create_topics(["speed"], partitions=1)
    writer = gateway.writer("speed")
    for number in range(count):
        writer.send(number, b'{"n": %d, "pad": "%s"}' % (number, b"x" * 80), b"key")
    assert not writer.flush(120)
    bootstrap = gateway._link.bootstrap

    def by_ours() -> int:
        with gateway.reader({TopicPartition("speed", 0): 0}) as reader:
            seen = 0
            while seen < count:
                seen += len(reader.read(1.0))
        return seen

    async def read_all() -> int:
        from aiokafka import AIOKafkaConsumer
        from aiokafka.structs import TopicPartition as Partition

        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign([Partition("speed", 0)])
        await consumer.seek_to_beginning()
        seen = 0
        while seen < count:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                seen += len(records)
        await consumer.stop()
        return seen

    for name, read in (("confluent-kafka", by_ours), ("aiokafka", lambda: asyncio.run(read_all()))):
        taken = list(_timed(read))
        rates = ", ".join(f"{count / seconds:,.0f}/s" for seconds in taken)
        say(f"     {name}: {rates}")


def _timed(read: Callable[[], int]) -> Iterator[float]:
    for _ in range(3):
        start = time.perf_counter()
        read()
        yield time.perf_counter() - start


def main() -> int:
    parts = {"hostile": hostile, "large": large, "export": export, "speed": speed}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("part", nargs="*", choices=[*parts, []], help="all, if none is named")
    parser.add_argument("--seconds", type=float, default=60, help="of a slow reader")
    parser.add_argument("--mb", type=int, default=1024, help="of the export")
    options = parser.parse_args()
    verdict = Verdict()
    with tempfile.TemporaryDirectory(prefix="messages-bench-") as directory:
        where = Path(directory)
        with (
            OdradekBroker(where / "broker", BROKER_SETTINGS) as broker,
            WebProcess(where, broker.bootstrap, AS_SHIPPED, data=broker.data) as web,
        ):
            gateway = Gateway(broker.bootstrap, timeout_s=60)
            gateway.check()
            for name in options.part or parts:
                parts[name](web, gateway, verdict, options)
    return verdict.end()


if __name__ == "__main__":
    raise SystemExit(main())
