"""`python -m tests.bench`: the table of Apache Kafka 4.4 beside Odradek. Takes most of an hour on two cores.

A full run writes docs/benchmarks.md; `--only` and `--quick` print alone, but for `--update`. Ends with 1 when a line failed or a bar is missed.
"""

import argparse
import fnmatch
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.bench import brokers, generator, loop_lag, report
from tests.bench.brokers import Broker
from tests.bench.cluster_speed import ClusterSpeed
from tests.bench.interference import ColdReader
from tests.bench.java_client import JavaProducer
from tests.bench.line import FULL, QUICK, Bench, Line, Scale, TopicLine
from tests.bench.report import LineResult
from tests.bench.resources import (
    IdleMemory,
    LoadedMemory,
    ManyPartitions,
    Start,
    touch_free_memory,
)
from tests.bench.speed import (
    core_lines,
    flush_lines,
    fresh_lines,
    idle_lines,
    many_partition_lines,
    strict_lines,
)

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENT = REPOSITORY / "docs" / "benchmarks.md"
NAMES = (brokers.Kafka.name, brokers.Odradek.name)
WARMUP_TOPIC = "warm-up"


def all_lines() -> list[Line]:
    """In the order of the run: a start needs idle cores, memory is read before and right after the core lines."""
    core = list(core_lines())
    return [
        Start(),
        *fresh_lines(),
        IdleMemory(),
        *core,
        LoadedMemory([line for line in core if isinstance(line, TopicLine)]),
        *many_partition_lines(),
        *idle_lines(),
        JavaProducer(),
        *strict_lines(),
        *flush_lines(),
        ColdReader(),
        ManyPartitions(),
        ClusterSpeed(),
    ]


def chosen(lines: Iterable[Line], patterns: list[str]) -> list[Line]:
    if not patterns:
        return list(lines)
    return [line for line in lines if any(fnmatch.fnmatch(line.name, p) for p in patterns)]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Runner:
    """Runs lines on the chosen brokers, one broker at a time under load."""

    def __init__(self, scale: Scale, directory: Path, names: tuple[str, ...]) -> None:
        self.bench = Bench(scale, directory)
        self.names = names
        self.pair: dict[str, Broker] = {}
        self.warm: set[str] = set()

    def run(self, line: Line) -> LineResult:
        result = LineResult(line)
        if line.is_paired:
            self._start_pair(result)
            for name, broker in self.pair.items():
                self._guard(result, name, partial(line.prepare, self.bench, broker))
        else:
            self.close()
        for number in range(self.bench.scale.rounds):
            # The order turns round, so that neither side always has the other's write-back behind it.
            for name in self.names if number % 2 == 0 else reversed(self.names):
                self._round(result, name, number)
        for name, broker in self.pair.items():
            self._guard(result, name, partial(line.finish, self.bench, broker))
        return result

    def _round(self, result: LineResult, name: str, number: int) -> None:
        if name in result.failures:
            return
        broker = self.pair.get(name) or brokers.create(name, self._new_directory())
        os.sync()  # write-back of what earlier rounds left dirty is not this round's

        def measure() -> None:
            lags = result.loop_lag_ms if result.line.has_load else []
            with loop_lag.measured(broker, lags):
                values = result.line.run(self.bench, broker)
            result.rounds.setdefault(name, []).append(values)
            shown = ", ".join(
                report.format_value(values[f.key], f"{f.unit} {f.title}".strip())
                for f in result.line.figures
            )
            say(f"{result.line.name} [{number + 1}/{self.bench.scale.rounds}] {name}: {shown}")

        self._guard(result, name, measure)

    def _guard(self, result: LineResult, name: str, work: Callable[[], None]) -> None:
        """A line that fails on one broker is reported and does not end the run."""
        if name in result.failures:
            return
        try:
            work()
        except (Exception, pytest.skip.Exception, pytest.fail.Exception) as error:
            result.failures[name] = f"{type(error).__name__}: {error}"
            say(f"{result.line.name}: {name} failed: {result.failures[name]}")

    def _start_pair(self, result: LineResult) -> None:
        """Both brokers run, and are warm unless the line wants them as they are after a start."""
        for name in self.names:
            broker = self.pair.get(name)
            if broker is None or broker.process is None or broker.process.poll() is not None:
                self.pair.pop(name, None)
                self.warm.discard(name)
                self._guard(result, name, partial(self._start, name))
        for name, broker in self.pair.items():
            if not result.line.needs_fresh_broker and name not in self.warm:
                self._guard(result, name, partial(self._warm_up, broker))

    def _start(self, name: str) -> None:
        say(f"{name} starts")
        broker = brokers.create(name, self._new_directory())
        try:
            brokers.start(broker)
        except BaseException:
            broker.close()
            raise
        self.pair[name] = broker

    def _warm_up(self, broker: Broker) -> None:
        """Java compiles what is hot, and is several times faster afterwards: how warm it is decides the ratios."""
        seconds = self.bench.scale.broker_warmup_seconds
        self.warm.add(broker.name)
        if not seconds:
            return
        say(f"{broker.name} warms up")
        self.bench.create_topic(broker, WARMUP_TOPIC)
        for arguments in (("-recs", 1), ("-recs", 100), ("-recs", 1, "-version", 13)):
            load = ("-topic", WARMUP_TOPIC, *arguments, "-seconds", seconds)
            self.bench.generate(broker, "produce", *load)
        self.bench.generate(broker, "fetch", "-topic", WARMUP_TOPIC, "-seconds", seconds)
        self.bench.delete_topic(broker, WARMUP_TOPIC)

    def _new_directory(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.bench.directory))

    def close(self) -> None:
        for broker in self.pair.values():
            broker.close()
            shutil.rmtree(broker.data, ignore_errors=True)
        self.pair.clear()


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--list", action="store_true", help="name the lines and their bars")
    parser.add_argument(
        "--only", action="append", default=[], metavar="NAME", help="a line, or a pattern (tiny*)"
    )
    parser.add_argument("--quick", action="store_true", help="one short round: do the lines work?")
    parser.add_argument("--rounds", type=int, help="instead of 3")
    parser.add_argument(
        "--warmup",
        type=float,
        metavar="SECONDS",
        help="of each of four loads on a broker before its first line, instead of 10",
    )
    parser.add_argument("--broker", choices=NAMES, help="one side alone")
    parser.add_argument("--output", type=Path, help="write the document there")
    parser.add_argument(
        "--update",
        action="store_true",
        help="put what was measured into the document of an earlier full run",
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=REPOSITORY / ".cache",
        help="where the data directories are made",
    )
    return parser.parse_args(arguments)


def print_list(lines: list[Line]) -> None:
    for line in lines:
        for figure in line.figures:
            bar = report.format_bar(figure.bar, figure.unit)
            what = f"{line.title}: {figure.title}" if figure.title else line.title
            print(f"{line.name:20} {what} [{figure.unit or '-'}], bar: {bar}")


def command_line(options: argparse.Namespace) -> str:
    """What made these figures, without the places of this machine."""
    words = ["python -m tests.bench", *(f"--only '{name}'" for name in options.only)]
    words += ["--quick"] * options.quick
    if options.rounds:
        words.append(f"--rounds {options.rounds}")
    if options.warmup is not None:
        words.append(f"--warmup {options.warmup:g}")
    if options.broker:
        words.append(f"--broker {options.broker}")
    return " ".join(words)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    lines = chosen(all_lines(), options.only)
    if not lines:
        say(f"no line is called {' or '.join(options.only)}; --list names them")
        return 2
    if options.list:
        print_list(lines)
        return 0
    scale = QUICK if options.quick else FULL
    if options.rounds:
        scale = replace(scale, rounds=options.rounds)
    if options.warmup is not None:
        scale = replace(scale, broker_warmup_seconds=options.warmup)
    generator.binary()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the brokers must not outlive us
    options.work.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir=options.work))
    runner = Runner(scale, directory, (options.broker,) if options.broker else NAMES)
    results: list[LineResult] = []
    if not options.quick:
        say("touching the free memory")
        touch_free_memory()
    started = time.perf_counter()
    try:
        results.extend(runner.run(line) for line in lines)
    except KeyboardInterrupt:
        say("interrupted: what was measured so far follows")
    finally:
        runner.close()
        shutil.rmtree(directory, ignore_errors=True)
    say(f"took {time.perf_counter() - started:.0f} s")
    print(report.table(results))
    if len(results) < len(lines):
        return 130
    problems = report.failures(results)
    for problem in problems:
        print(f"failed: {problem}")
    is_full = not (options.only or options.quick or options.broker or problems)
    output = options.output or (DOCUMENT if is_full else None)
    if options.update and not problems:
        (output or DOCUMENT).write_text(
            report.updated((output or DOCUMENT).read_text(), results, command_line(options))
        )
    elif output is not None:
        facts = report.machine_facts()
        output.write_text(report.document(results, scale, command_line(options), facts))
    return 1 if problems or report.missed(results) else 0


if __name__ == "__main__":
    sys.exit(main())
