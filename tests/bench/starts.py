"""How soon the one-file executable serves: the first time, when it unpacks itself, and later.

    python -m tests.bench.starts [--executable dist/odradek] [--rounds 5]

Each round has an empty data directory. From the creation of the process: until a client is answered (Metadata, for
which it takes a live broker), until
``/readyz`` says 200; and all of ``odradek version``. The file is in the page cache, as after a download.
The first start has an empty cache to unpack into. Told are medians, and the longest.
"""

from __future__ import annotations

import argparse
import http.client
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.bench import brokers
from tests.bench.web_visits import say
from tests.support import judge, processes, wire

BARS_S = {
    "first start to an answered client": 6.0,
    "later start to an answered client": 1.0,
    "later start to /readyz": 5.0,
    "odradek version": 0.4,
}
EVERY_S = 0.005
LIMIT_S = 120.0


class Start(NamedTuple):
    answered_s: float
    ready_s: float


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--executable", type=Path, default=Path("dist/odradek"))
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    executable = options.executable.absolute()
    executable.read_bytes()
    brokers.load_probes()
    took: dict[str, list[float]] = {title: [] for title in BARS_S}
    first, later, ready, version = took.values()
    with tempfile.TemporaryDirectory(prefix="odradek-starts-") as name:
        for number in range(options.rounds):
            place = Path(name, str(number))
            place.mkdir(mode=0o700)
            first.append(start(executable, place, "first").answered_s)
            found = start(executable, place, "later")
            later.append(found.answered_s)
            ready.append(found.ready_s)
            version.append(timed_version(executable, place))
            say(
                f"round {number + 1}: first {first[-1]:.2f} s, later {later[-1]:.2f} s, ready"
                f" {ready[-1]:.2f} s, version {version[-1]:.2f} s"
            )
    is_good = True
    for title, bar in BARS_S.items():
        median = statistics.median(took[title])
        say(f"{title}: {median:.2f} s, at most {max(took[title]):.2f} s (bar: under {bar:g} s)")
        is_good &= median < bar
    say("all bars hold" if is_good else "a bar does not hold")
    return 0 if is_good else 1


def environment(place: Path) -> dict[str, str]:
    return {**os.environ, "ODRADEK_CACHE": str(place / "cache")}


def start(executable: Path, place: Path, name: str) -> Start:
    kafka, web = ("127.0.0.1", judge.free_port()), judge.free_port()
    command = [str(executable), "serve", "--data", str(place / name)]
    command += ["--listen", f"127.0.0.1:{kafka[1]}", "--web", f"127.0.0.1:{web}"]
    log = place / f"{name}.txt"
    with log.open("wb") as output:
        began = time.perf_counter()
        process = subprocess.Popen(
            command, env=environment(place), stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )

    def until(condition: Callable[[], bool]) -> float:
        while not condition():
            assert process.poll() is None, processes.tail(log)
            assert time.perf_counter() - began < LIMIT_S, processes.tail(log)
            time.sleep(EVERY_S)
        return time.perf_counter() - began

    try:
        return Start(until(lambda: wire.answers(kafka)), until(lambda: is_ready(web)))
    finally:
        processes.end(process, signal.SIGTERM, 90)


def is_ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def timed_version(executable: Path, place: Path) -> float:
    began = time.perf_counter()
    subprocess.run(
        [str(executable), "version"], env=environment(place), check=True, capture_output=True
    )
    return time.perf_counter() - began


if __name__ == "__main__":
    raise SystemExit(main())
