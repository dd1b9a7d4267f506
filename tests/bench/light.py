"""What the whole appliance costs while nobody asks anything of it, Apache Kafka alone beside it.

    python -m tests.bench.light [--minutes 10] [--cpu-minutes 5] [--topics 1000] [--partitions 3]
                                [--executable FILE] [--only odradek|kafka] [--show-log]

`odradek serve` (broker, worker with beat, web; or the one-file executable) with that many topics. Somebody
signs in, looks at a page and closes it; nothing is asked after that, the collector and the schedules go on. After
``--minutes``: the sum of Pss (private pages, and of each shared page this process's part) over all processes, and the
broker's RssAnon + RssShmem; over ``--cpu-minutes`` after that, the CPU of all processes and the lines that
they logged. Apache Kafka has the same topics, and nothing else; it is measured after ours has been stopped.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import httpx

from dashboard.gateway import Gateway
from tests.bench import brokers
from tests.bench.web_visits import say
from tests.support import judge, processes
from tests.support.odradek import REPOSITORY
from tests.support.serving import serving

BAR_PSS_MB = 260.0
BAR_BROKER_MB = 50.0
BAR_CPU_PERCENT = 2.0
BAR_LINES_AN_HOUR = 10.0
PASSWORD = "correct-horse-9"
TOPICS_PER_REQUEST = 100
KIB_PER_MB = 1e6 / 1024
SIGNED_IN_AT = "/topics/"
_TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


class Cost(NamedTuple):
    """Of all processes together, but for ``broker_mb``; ``pss_mb`` by what runs in each."""

    pss_mb: dict[str, float]
    broker_mb: float
    cpu_percent: float
    lines_an_hour: float


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--minutes", type=float, default=10, help="from start to the look at memory"
    )
    parser.add_argument("--cpu-minutes", type=float, default=5)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--executable", type=Path, help="`dist/odradek` instead of this clone")
    parser.add_argument("--only", choices=("odradek", "kafka"))
    parser.add_argument("--show-log", action="store_true", help="the lines that were logged")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="odradek-light-") as name:
        ours = of_ours(Path(name), options) if options.only != "kafka" else None
        kafka = of_kafka(Path(name), options) if options.only != "odradek" else None
    return verdict(ours, kafka)


# The two


def of_ours(directory: Path, options: argparse.Namespace) -> Cost:
    log = directory / "log.txt"
    kafka, web = judge.free_port(), judge.free_port()
    executable = options.executable
    program = [executable.absolute()] if executable else [sys.executable, "-m", "appliance"]
    command = [*program, "serve", "--data", directory / "data"]
    command += ["--listen", f"127.0.0.1:{kafka}", "--web", f"127.0.0.1:{web}"]
    environment = {
        **os.environ,
        "ODRADEK_ADMIN_PASSWORD": PASSWORD,
        "ODRADEK_CACHE": str(directory / "cache"),
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with serving(command, REPOSITORY, environment, log=log) as process:
        make_topics(f"127.0.0.1:{kafka}", options.topics, options.partitions)
        look(f"http://127.0.0.1:{web}")
        return measured(process.pid, log, options)


def of_kafka(directory: Path, options: argparse.Namespace) -> Cost:
    broker = brokers.create(brokers.Kafka.name, directory)
    try:
        brokers.start(broker)
        host, port = broker.address
        make_topics(f"{host}:{port}", options.topics, options.partitions)
        return measured(broker.pid, broker.output, options)
    finally:
        broker.close()


def make_topics(bootstrap: str, topics: int, partitions: int) -> None:
    gateway = Gateway(bootstrap, timeout_s=60)
    gateway.check()
    names = [f"light-{number:05d}" for number in range(topics)]
    for start in range(0, topics, TOPICS_PER_REQUEST):
        outcomes = gateway.create_topics(
            names[start : start + TOPICS_PER_REQUEST], partitions=partitions
        )
        assert not any(outcomes.values()), outcomes


def look(url: str) -> None:
    """Sign in, open a page, close it."""
    with httpx.Client(base_url=url, timeout=60, follow_redirects=True) as client:
        found = _TOKEN.search(client.get("/login/").text)
        assert found is not None, "the page of signing in has no form"
        form = {"username": "admin", "password": PASSWORD, "csrfmiddlewaretoken": found[1]}
        answer = client.post("/login/", data=form, headers={"Referer": f"{url}/login/"})
        assert answer.is_success, answer
        processes.wait_until(
            lambda: "light-" in client.get(SIGNED_IN_AT).text, 120, "a page with a topic", every=1
        )


# Measuring


def measured(root: int, log: Path, options: argparse.Namespace) -> Cost:
    time.sleep(options.minutes * 60)
    memory = {f"{kind_of(pid)} ({pid})": pss_kib(pid) / KIB_PER_MB for pid in processes_from(root)}
    broker_mb = sum(
        processes.status_kib(pid, field) / KIB_PER_MB
        for pid in processes_from(root)
        if kind_of(pid) == "broker"
        for field in ("RssAnon", "RssShmem")
    )
    before, lines = cpu_seconds(root), len(log.read_text().splitlines())
    seconds = options.cpu_minutes * 60
    time.sleep(seconds)
    cpu_percent = (cpu_seconds(root) - before) / seconds * 100
    logged = log.read_text().splitlines()[lines:]
    if options.show_log:
        say("\n".join(logged))
    return Cost(memory, broker_mb, cpu_percent, len(logged) * 3600 / seconds)


def processes_from(root: int) -> list[int]:
    """This process and all below it."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                status = (entry / "stat").read_text()
            except OSError:
                continue  # it has ended
            parent = int(status.rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += parents.get(pid, [])
    return found


def kind_of(pid: int) -> str:
    """What a person calls it: the module that runs."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    if "-m" in words:
        return words[words.index("-m") + 1].removeprefix("appliance.")
    return "kafka" if "kafka.Kafka" in words else Path(words[0]).name


def pss_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    raise AssertionError("smaps_rollup tells no Pss")


def cpu_seconds(root: int) -> float:
    """Of all processes, those that have ended and were waited for among them."""
    tick = os.sysconf("SC_CLK_TCK")
    total = 0.0
    for pid in processes_from(root):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += sum(int(each) for each in fields[11:15]) / tick
    return total


def verdict(ours: Cost | None, kafka: Cost | None) -> int:
    is_good = True
    if kafka is not None:
        say(
            f"Apache Kafka alone: Pss {sum(kafka.pss_mb.values()):.1f} MB, CPU"
            f" {kafka.cpu_percent:.1f} % of a core, {kafka.lines_an_hour:.0f} log lines an hour"
        )
    if ours is None:
        return 0
    for name, mb in ours.pss_mb.items():
        say(f"  {name}: Pss {mb:.1f} MB")
    for title, value, bar, unit in (
        ("Pss of all processes", sum(ours.pss_mb.values()), BAR_PSS_MB, " MB"),
        ("broker's RssAnon + RssShmem", ours.broker_mb, BAR_BROKER_MB, " MB"),
        ("CPU of all processes", ours.cpu_percent, BAR_CPU_PERCENT, " % of a core"),
        ("log lines an hour", ours.lines_an_hour, BAR_LINES_AN_HOUR, ""),
    ):
        say(f"{title}: {value:.1f}{unit} (bar: at most {bar:g})")
        is_good &= value <= bar
    say("all bars hold" if is_good else "a bar does not hold")
    return 0 if is_good else 1


if __name__ == "__main__":
    raise SystemExit(main())
