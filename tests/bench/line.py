"""What a benchmark consists of: lines, the figures each one yields, and the bars that these must meet."""

import enum
import shutil
from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from tests.bench import brokers, generator
from tests.bench.brokers import Broker


class BarKind(enum.Enum):
    RATIO_AT_LEAST = enum.auto()
    RATIO_AT_MOST = enum.auto()
    VALUE_AT_MOST = enum.auto()


@dataclass(frozen=True, slots=True)
class Bar:
    """What Odradek owes: a ratio to Kafka's figure of the same run, or a value of its own."""

    kind: BarKind
    limit: float

    def is_met(self, kafka: float | None, odradek: float) -> bool:
        if self.kind is BarKind.VALUE_AT_MOST:
            return odradek <= self.limit
        if kafka is None:
            return False
        if self.kind is BarKind.RATIO_AT_LEAST:
            return odradek >= kafka * self.limit
        return odradek <= kafka * self.limit


def at_least(ratio: float) -> Bar:
    return Bar(BarKind.RATIO_AT_LEAST, ratio)


def at_most(ratio: float) -> Bar:
    return Bar(BarKind.RATIO_AT_MOST, ratio)


def value_at_most(value: float) -> Bar:
    return Bar(BarKind.VALUE_AT_MOST, value)


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a line. `source` is where the generator's JSON has it ("latency_ms/p99"), if it does."""

    key: str
    title: str
    unit: str
    bar: Bar | None = None
    source: str = ""

    def read(self, result: Mapping[str, Any]) -> float:
        value: Any = result
        for name in self.source.split("/"):
            value = value[name]
        return float(value)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything. `quick` shows that the lines work; its figures mean little."""

    rounds: int
    seconds: float
    warmup_seconds: float
    share: float  # of the data volumes
    broker_warmup_seconds: float  # of each of four loads, before a broker's first line

    def count(self, full: int, least: int = 1) -> int:
        return max(least, round(full * self.share))


FULL = Scale(rounds=3, seconds=5, warmup_seconds=1, share=1, broker_warmup_seconds=10)
QUICK = Scale(rounds=1, seconds=1, warmup_seconds=0.3, share=0.1, broker_warmup_seconds=1)


@dataclass(slots=True)
class Bench:
    """What a line gets to work with: the scale, a directory for data, and notes left by earlier lines."""

    scale: Scale
    directory: Path
    loaded: set[str] = field(default_factory=set)  # brokers that the speed lines ran on

    def generate(self, broker: Broker, mode: str, *arguments: object) -> dict[str, Any]:
        return generator.run(broker.address, mode, *arguments, pids=[broker.pid])

    def create_topic(
        self, broker: Broker, topic: str, partitions: int = 1, **configs: object
    ) -> None:
        arguments: list[object] = ["-topic", topic, "-parts", partitions]
        for name, value in configs.items():
            arguments += ["-config", f"{name.replace('_', '.')}={value}"]
        self.generate(broker, "create", *arguments)

    def delete_topic(self, broker: Broker, topic: str) -> None:
        self.generate(broker, "delete", "-topic", topic)


class Line(ABC):
    """One kind of work. `is_paired` lines run on two brokers that stay up; the others start their own."""

    is_paired: ClassVar[bool] = True
    needs_fresh_broker: ClassVar[bool] = False
    has_load: ClassVar[bool] = True  # else there is no loop lag to speak of

    def __init__(self, name: str, title: str, *figures: Figure) -> None:
        self.name = name
        self.title = title
        self.figures = figures

    def prepare(self, bench: Bench, broker: Broker) -> None:
        """Once per broker, before the rounds."""

    def run(self, bench: Bench, broker: Broker) -> dict[str, float]:
        """One round: a value for each figure."""
        raise NotImplementedError

    def finish(self, bench: Bench, broker: Broker) -> None:
        """Once per broker, after the rounds."""


@dataclass(frozen=True, slots=True)
class Load:
    """Arguments of one generator run, by mode."""

    mode: str
    arguments: tuple[object, ...]


class TopicLine(Line):
    """Generator load on a topic of its own, which is deleted afterwards."""

    def __init__(
        self,
        name: str,
        title: str,
        load: Load,
        *figures: Figure,
        partitions: int = 1,
        seconds_factor: float = 1,
        fill: tuple[object, ...] = (),
        fill_requests: int = 0,
        configs: Mapping[str, object] | None = None,
        odradek_configs: Mapping[str, object] | None = None,
        is_core: bool = False,
    ) -> None:
        super().__init__(name, title, *figures)
        self.load = load
        self.partitions = partitions
        self.seconds_factor = seconds_factor
        self.fill = fill
        self.fill_requests = fill_requests
        self.configs = dict(configs or {})
        self.odradek_configs = dict(odradek_configs or {})
        self.is_core = is_core

    def prepare(self, bench: Bench, broker: Broker) -> None:
        configs = dict(self.configs)
        if broker.name == brokers.Odradek.name:
            configs |= self.odradek_configs
        arguments: list[object] = ["-topic", self.name, "-parts", self.partitions]
        for key, value in configs.items():
            arguments += ["-config", f"{key}={value}"]
        bench.generate(broker, "create", *arguments)
        if self.fill:
            requests = bench.scale.count(self.fill_requests)
            topic = ("-topic", self.name, "-parts", self.partitions)
            bench.generate(broker, "produce", *topic, *self.fill, "-reqs", requests)
        self._touch_all_partitions(bench, broker)

    def _touch_all_partitions(self, bench: Bench, broker: Broker) -> None:
        """The first append to a partition makes its files: 50 at once took Kafka 2.8 s, which is not the line."""
        if self.partitions > 1 and not self.fill:
            arguments = ("-topic", self.name, "-parts", self.partitions, "-rotate", "-recs", 1)
            bench.generate(broker, "produce", *arguments, "-reqs", self.partitions)

    def run(self, bench: Bench, broker: Broker) -> dict[str, float]:
        result = self.run_for(bench, broker, bench.scale.seconds * self.seconds_factor)
        if self.is_core:
            bench.loaded.add(broker.name)
        return {figure.key: figure.read(result) for figure in self.figures}

    def run_for(self, bench: Bench, broker: Broker, seconds: float) -> dict[str, Any]:
        topic = ("-topic", self.name, "-parts", self.partitions)
        time = ("-seconds", seconds, "-warmup", bench.scale.warmup_seconds)
        return bench.generate(broker, self.load.mode, *topic, *self.load.arguments, *time)

    def finish(self, bench: Bench, broker: Broker) -> None:
        bench.delete_topic(broker, self.name)


class FreshLine(Line):
    """The same load on a broker that has just started, a fixed number of requests: how the bars were set.

    Every round starts its broker anew, with nothing but the topic's creation before the load.
    """

    is_paired = False

    def __init__(self, line: TopicLine, requests: int) -> None:
        super().__init__(f"{line.name}-fresh", f"{line.title}; just started", *line.figures)
        self.line = line
        self.requests = requests

    def run(self, bench: Bench, broker: Broker) -> dict[str, float]:
        line = self.line
        try:
            brokers.start(broker)
            line.prepare(bench, broker)
            topic = ("-topic", line.name, "-parts", line.partitions)
            requests = ("-reqs", bench.scale.count(self.requests))
            result = bench.generate(broker, line.load.mode, *topic, *line.load.arguments, *requests)
            return {figure.key: figure.read(result) for figure in self.figures}
        finally:
            broker.close()
            shutil.rmtree(broker.data, ignore_errors=True)
