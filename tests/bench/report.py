"""From rounds to a table: medians, ratios, bars, and docs/benchmarks.md."""

import os
import platform
import re
import statistics
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from broker import compiled
from tests.bench.brokers import DELETE_DELAY_MS, KAFKA_JVM, Kafka, Odradek
from tests.bench.line import Bar, BarKind, Figure, Line, Scale

HEADINGS = ("line", "Apache Kafka 4.4", "Odradek", "ratio", "bar", "met", "loop lag p99.9")
KAFKA, ODRADEK = Kafka.name, Odradek.name


@dataclass(slots=True)
class LineResult:
    """The rounds of one line, by broker; `loop_lag_ms` is Odradek's, and `failures` says what went wrong."""

    line: Line
    rounds: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    loop_lag_ms: list[float] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    def median(self, broker: str, figure: Figure) -> float | None:
        values = [values[figure.key] for values in self.rounds.get(broker, ())]
        return statistics.median(values) if values else None

    def is_met(self, figure: Figure) -> bool | None:
        """None where nothing is owed, or where Kafka's figure was not asked for."""
        kafka, odradek = self.median(KAFKA, figure), self.median(ODRADEK, figure)
        if figure.bar is None or (kafka is None and figure.bar.kind is not BarKind.VALUE_AT_MOST):
            return None
        return odradek is not None and figure.bar.is_met(kafka, odradek)


def format_value(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f} {unit}".strip()


def format_ratio(ratio: float) -> str:
    """7.04 is `7x`, 0.12 is `1/8.3`: two digits say enough."""
    if ratio <= 0:
        return "0"
    times = max(ratio, 1 / ratio)
    digits = f"{times:,.0f}" if times >= 10 else f"{times:.1f}".removesuffix(".0")
    return f"{digits}x" if ratio >= 1 or digits == "1" else f"1/{digits}"


def format_bar(bar: Bar | None, unit: str) -> str:
    if bar is None:
        return "-"
    if bar.kind is BarKind.VALUE_AT_MOST:
        return f"at most {format_value(bar.limit, unit)}"
    words = "at least" if bar.kind is BarKind.RATIO_AT_LEAST else "at most"
    return f"{words} {format_ratio(bar.limit)}"


def row(result: LineResult, figure: Figure, *, is_first: bool) -> tuple[str, ...]:
    kafka, odradek = result.median(KAFKA, figure), result.median(ODRADEK, figure)
    title = result.line.title + (f": {figure.title}" if figure.title else "")
    ratio = "-" if not kafka or odradek is None else format_ratio(odradek / kafka)
    met = {None: "-", True: "yes", False: "NO"}[result.is_met(figure)]
    lags = result.loop_lag_ms if is_first else []
    return (
        f"`{result.line.name}` {title}",
        format_value(kafka, figure.unit),
        format_value(odradek, figure.unit),
        ratio,
        format_bar(figure.bar, figure.unit),
        met,
        format_value(statistics.median(lags), "ms") if lags else "-",
    )


def rows_of(result: LineResult) -> list[tuple[str, ...]]:
    figures = result.line.figures
    return [row(result, figure, is_first=figure is figures[0]) for figure in figures]


def table(results: Iterable[LineResult]) -> str:
    """Markdown, padded so that it also reads on a terminal."""
    return padded([HEADINGS, *(cells for result in results for cells in rows_of(result))])


def padded(rows: Sequence[Sequence[str]]) -> str:
    """The first row is the headings."""
    widths = [max(len(cells[i]) for cells in rows) for i in range(len(HEADINGS))]
    lines = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) + " |" for r in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def failures(results: Iterable[LineResult]) -> list[str]:
    return [
        f"{result.line.name} on {broker}: {reason}"
        for result in results
        for broker, reason in result.failures.items()
    ]


def missed(results: Iterable[LineResult]) -> list[str]:
    return [
        f"{result.line.name}{f' ({figure.title})' if figure.title else ''}"
        for result in results
        for figure in result.line.figures
        if result.is_met(figure) is False
    ]


def first_match(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    return found[1] if found else "unknown"


def machine_facts() -> dict[str, str]:
    """What the figures depend on; nothing that names this machine."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
    memory_kb = first_match(r"^MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    return {
        "cores": str(os.cpu_count()),
        "processor": first_match(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text()),
        "memory": f"{int(memory_kb) / 2**20:.0f} GiB",
        "Linux": ".".join(platform.release().split(".")[:2]),
        "Python": platform.python_version(),
        "Java": first_match(r'version "([^"]+)"', java),
    }


DOCUMENT = """\
# Benchmarks

Made by `{command}`. Apache Kafka 4.4 and Odradek run on the same machine in the same run; every line is alternated
between them ({rounds} x {seconds:g} s where time is the measure), never both under load at once; the table
shows medians. Ratio is Odradek / Kafka. Ratios hold better than absolute figures: run it where you will run Odradek.
The dashboard's own figures are in [benchmarks_dashboard.md](benchmarks_dashboard.md).

{facts}

{table}

{verdict}

## How it is measured

- The load comes from `tests/bench/loadgen`, a small Go program that sends prebuilt record batches and reads raw
  answers over loopback, because Java and librdkafka cost more CPU than a broker does. It checks every answer (error
  codes, order, whole batches). Generator and broker share the cores.
- Closed loops keep 5 requests in flight on a connection. Offered rates are open loops: latency counts from the
  scheduled time, so a stall does not hide the requests that it delays. Records are uncompressed, acks=1.
- Apache Kafka runs as one KRaft node with the settings of its start script: `{jvm}`. Java is
  several times faster once it has compiled what is hot, so both brokers get {broker_warmup:g} s of each of four loads
  before their first line, and {warmup:g} s of the same work before each measurement. The bars were set on a Kafka that
  had just started, with as many requests as the `-fresh` lines send; the warm lines are held to the same bars.
- Odradek's hot path is {code} (`make compile`). The free memory is written to once before all lines, because a
  virtual machine pays its host for pages that it never used; topics' files go {delete_delay_ms} ms after their topic,
  so that the page cache is used again.
- Memory: Kafka's resident memory; Odradek's anonymous and shared memory (`RssAnon` + `RssShmem`), since pages of
  mapped log segments are page cache. In the line of 5,000 partitions it is resident memory on both sides.
- Start: from the creation of the process until a Metadata answer names the broker; with 5,000 partitions until a
  stored record of the last partition was fetched. `kill -9` comes right after the last append, with nothing flushed.
- Cold data: while the consumer reads, its topic's pages are dropped from the page cache every 50 ms.
- Three brokers with replicas: Kafka's form a KRaft cluster, Odradek's one through ZooKeeper, which shares the cores. Each round
  starts a new cluster, warms it up by two loads, and writes with acks=all and min.insync.replicas=2; the table tells the depth. How
  long a producer waits after a kill, and 5,000 partitions on three brokers: `python -m tests.bench.failover`, `tests.bench.cluster_many`.
- Loop lag: how late Odradek's event loop ran its timers during the line, 99.9th percentile.
"""


NOT_MET: Final = "Not met: "
ALL_MET: Final = "Every bar is met."
#: Between them; some have commas of their own.
NEXT: Final = "; "


def verdict(not_met: Sequence[str]) -> str:
    return f"{NOT_MET}{NEXT.join(not_met)}." if not_met else ALL_MET


def updated(text: str, results: Sequence[LineResult], command: str) -> str:
    """The document with these lines measured again, or for the first time, and a sentence that says so."""
    measured = {result.line.name: rows_of(result) for result in results}
    rows: list[Sequence[str]] = [HEADINGS]
    replaced: set[str] = set()
    kept: list[str] = []
    for line in text.splitlines():
        if not line.startswith("|"):
            kept.append(line)
            continue
        if line.startswith("|-"):
            kept.append(line)  # where the table goes
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        name = cells[0].split("`")[1] if cells[0].startswith("`") else ""
        if name in measured:
            rows += measured[name] if name not in replaced else []
            replaced.add(name)
        elif name:
            rows.append(cells)
    for name, new in measured.items():
        rows += new if name not in replaced else []
    made: list[str] = []
    for line in kept:
        if line.startswith("|"):
            made.append(padded(rows))
        elif line.startswith(NOT_MET) or line == ALL_MET:
            names = line.removeprefix(NOT_MET).rstrip(".").split(NEXT) if line != ALL_MET else []
            left = [name for name in names if name.split(" ")[0] not in measured]
            made += [verdict([*left, *missed(results)]), ""]
            made.append(f"Measured again, by `{command}`: {', '.join(measured)}.")
        else:
            made.append(line)
    return "\n".join(made) + "\n"


def document(results: list[LineResult], scale: Scale, command: str, facts: dict[str, str]) -> str:
    return DOCUMENT.format(
        command=command,
        rounds=scale.rounds,
        seconds=scale.seconds,
        warmup=scale.warmup_seconds,
        broker_warmup=scale.broker_warmup_seconds,
        facts="\n".join(f"- {name}: {value}" for name, value in facts.items()),
        table=table(results),
        verdict=verdict(missed(results)),
        jvm=" ".join(KAFKA_JVM),
        code="compiled" if compiled.is_current() else "interpreted",
        delete_delay_ms=DELETE_DELAY_MS,
    )
