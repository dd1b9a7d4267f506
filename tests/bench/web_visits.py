"""People who look at pages, several side by side, and how long each page took them.

And where their cluster's data lies: made once with ``--data DIRECTORY --prepare``, measured as often
as one likes without that second option.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.support.web import WebProcess

STATUS_OK = 200
HUNG_S = 30.0
"""A page that takes longer counts as hung."""

PREPARED = "prepared.json"


def add_data_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, help="kept there; else in a directory that goes")
    parser.add_argument("--prepare", action="store_true", help="make the data, measure nothing")


@contextmanager
def place(options: argparse.Namespace, prefix: str) -> Iterator[Path]:
    """The directory of a run's data."""
    if options.data is not None:
        options.data.mkdir(parents=True, exist_ok=True)
        yield options.data
        return
    with tempfile.TemporaryDirectory(prefix=prefix) as name:
        yield Path(name)


def prepared(directory: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What ``make`` told when it made the data, now or in an earlier run."""
    note = directory / PREPARED
    if note.exists():
        told: dict[str, Any] = json.loads(note.read_text())
        return told
    told = make()
    note.write_text(json.dumps(told))
    return told


@dataclass
class Visits:
    """Milliseconds by path, and what was no page: (path, status or error)."""

    took_ms: dict[str, list[float]] = field(default_factory=dict)
    faults: list[tuple[str, str]] = field(default_factory=list)
    stale_count: int = 0
    """Pages with a row that says since when it is stale."""

    def look(self, client: httpx.Client, path: str) -> httpx.Response | None:
        began = time.perf_counter()
        try:
            answer = client.get(path)
        except httpx.HTTPError as error:
            self.faults.append((path, f"{type(error).__name__}: {error}"))
            return None
        self.took_ms.setdefault(path, []).append((time.perf_counter() - began) * 1000)
        if answer.status_code != STATUS_OK:
            self.faults.append((path, str(answer.status_code)))
        self.stale_count += "stale since" in answer.text
        return answer

    def all_ms(self, paths: Iterable[str] | None = None) -> list[float]:
        chosen = self.took_ms if paths is None else paths
        return [one for path in chosen for one in self.took_ms.get(path, ())]


def visit(
    web: WebProcess, paths: Sequence[str], *, visitors: int, seconds: float, pause_s: float
) -> Visits:
    """So many people, each with a session of their own, turn pages; each begins elsewhere."""
    visits = Visits()
    ends = time.monotonic() + seconds

    def turn(number: int) -> None:
        with web.client(("ada", "olga")[number % 2]) as client:
            client.timeout = httpx.Timeout(HUNG_S)
            place = number * len(paths) // max(1, visitors)
            while time.monotonic() < ends:
                visits.look(client, paths[place % len(paths)])
                place += 1
                time.sleep(pause_s)

    threads = [threading.Thread(target=turn, args=(number,)) for number in range(visitors)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return visits


def p95(values_ms: Sequence[float]) -> float:
    return statistics.quantiles(values_ms, n=20, method="inclusive")[-1]


def in_words(values_ms: Sequence[float]) -> str:
    return (
        f"p50 {statistics.median(values_ms):.0f} ms, p95 {p95(values_ms):.0f} ms,"
        f" longest {max(values_ms):.0f} ms of {len(values_ms)}"
    )


class Verdict:
    """Prints figures beside their bars and remembers whether all were met."""

    def __init__(self) -> None:
        self.is_good = True

    def judge(self, what: str, figure: str, bar: str, *, holds: bool) -> None:
        say(f"{'ok  ' if holds else 'FAIL'} {what}: {figure} (bar: {bar})")
        self.is_good &= holds

    def pages(self, what: str, values_ms: Sequence[float], bar_ms: float) -> None:
        self.judge(
            what, in_words(values_ms), f"p95 under {bar_ms:g} ms", holds=p95(values_ms) < bar_ms
        )

    def faultless(self, what: str, visits: Visits) -> None:
        named = "; ".join(f"{path}: {fault}" for path, fault in visits.faults[:3])
        self.judge(
            f"{what}, pages with an error or hung",
            f"{len(visits.faults)}{' ' + named if named else ''}",
            "none",
            holds=not visits.faults,
        )

    def end(self) -> int:
        say("all bars hold" if self.is_good else "a bar does not hold")
        return 0 if self.is_good else 1


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
