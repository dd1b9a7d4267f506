"""Lines whose figure is a rate or a latency of raw requests: produce, fetch, sessions, idle polls, group commit."""

from collections.abc import Iterator

from tests.bench.line import Bar, Figure, FreshLine, Line, Load, TopicLine, at_least, at_most

OLD_PRODUCE, NEW_PRODUCE = 8, 13
OLD_FETCH, NEW_FETCH = 11, 17
OFFERED_RATES = (500, 2_000, 3_500)
BIG_BATCHES_AT_MOST = 2_000  # 1.2 GB a round: time alone would fill a disk on the faster side


def requests(bar: Bar | None = None) -> Figure:
    return Figure("requests_per_s", "", "req/s", bar, "requests_per_s")


def records(bar: Bar | None = None) -> Figure:
    return Figure("records_per_s", "", "rec/s", bar, "records_per_s")


def megabytes(bar: Bar | None = None) -> Figure:
    return Figure("mb_per_s", "", "MB/s", bar, "mb_per_s")


def percentile(which: str, bar: Bar | None = None) -> Figure:
    return Figure(which, which, "ms", bar, f"latency_ms/{which}")


def cpu_per_request() -> Figure:
    return Figure("cpu_us", "broker CPU", "us/req", None, "cpu_us_per_request")


def suffix(version: int) -> str:
    return "" if version in (OLD_PRODUCE, OLD_FETCH) else f"-v{version}"


def core_produce_lines(version: int) -> Iterator[Line]:
    spoken = ("-version", version)
    label = f"Produce v{version}"
    yield TopicLine(
        f"tiny{suffix(version)}",
        f"1 record of 100 B a request, 1 connection, depth 5, {label}",
        Load("produce", ("-recs", 1, *spoken)),
        requests(at_least(4)),
        cpu_per_request(),
        is_core=True,
    )
    yield TopicLine(
        f"batch{suffix(version)}",
        f"100 x 100 B a request, {label}",
        Load("produce", ("-recs", 100, *spoken)),
        records(at_least(4)),
        is_core=True,
    )
    yield TopicLine(
        f"big{suffix(version)}",
        f"600 x 1,000 B a request, {label}",
        Load("produce", ("-recs", 600, "-size", 1000, "-reqs", BIG_BATCHES_AT_MOST, *spoken)),
        megabytes(at_least(3)),
        is_core=True,
    )
    yield TopicLine(
        f"eight{suffix(version)}",
        f"8 connections, 6 partitions, 10 x 100 B a request, {label}",
        Load("produce", ("-conns", 8, "-recs", 10, *spoken)),
        requests(at_least(3)),
        partitions=6,
        is_core=True,
    )


def core_fetch_lines(version: int) -> Iterator[Line]:
    session = ("-session",) if version == NEW_FETCH else ()
    how = "session, topic ids" if session else "sessionless"
    yield TopicLine(
        f"fetch{suffix(version)}",
        f"fetch of 1 MiB from the page cache, Fetch v{version}, {how}",
        Load("fetch", ("-version", version, *session)),
        megabytes(at_least(1.3)),
        fill=("-recs", 16, "-size", 1000),
        fill_requests=25_000,  # 400 MB in batches of 16 KB, the Java producer's size
        is_core=True,
    )


def core_latency_lines(version: int) -> Iterator[Line]:
    for rate in OFFERED_RATES:
        yield TopicLine(
            f"latency-{rate}{suffix(version)}",
            f"{rate:,} req/s offered on 1 connection, Produce v{version}",
            Load("produce", ("-recs", 1, "-rate", rate, "-version", version)),
            percentile("p50"),
            percentile("p99", at_most(1 / 2)),
            percentile("p99.9", at_most(1 / 2)),
            seconds_factor=2,
            is_core=True,
        )


#: Requests on a connection, as in the measurements that the bars come from.
FRESH_REQUESTS = {
    "tiny": 30_000,
    "batch": 20_000,
    "big": 2_000,
    "eight": 10_000,
    "fetch": 2_000,
    "flush": 300,
}

#: How long an offered rate lasts on a broker that has just started.
FRESH_OFFER_SECONDS = 10


def fresh_lines() -> Iterator[Line]:
    """The lines with bars as these were set, on brokers that nothing has warmed up."""
    for produce, fetch in ((OLD_PRODUCE, OLD_FETCH), (NEW_PRODUCE, NEW_FETCH)):
        for line in (*core_produce_lines(produce), *core_fetch_lines(fetch)):
            assert isinstance(line, TopicLine)
            yield FreshLine(line, FRESH_REQUESTS[line.name.partition("-")[0]])
        for rate, line in zip(OFFERED_RATES, core_latency_lines(produce), strict=True):
            assert isinstance(line, TopicLine)
            yield FreshLine(line, rate * FRESH_OFFER_SECONDS)
    for line in flush_lines():
        if any(figure.bar is not None for figure in line.figures):
            yield FreshLine(line, FRESH_REQUESTS["flush"])


def core_lines() -> Iterator[Line]:
    for produce, fetch in ((OLD_PRODUCE, OLD_FETCH), (NEW_PRODUCE, NEW_FETCH)):
        yield from core_produce_lines(produce)
        yield from core_fetch_lines(fetch)
        yield from core_latency_lines(produce)


def many_partition_lines() -> Iterator[Line]:
    for version in (OLD_PRODUCE, NEW_PRODUCE):
        yield TopicLine(
            f"fifty{suffix(version)}",
            f"50 partitions a request, 10 x 100 B each, Produce v{version}",
            Load("produce", ("-per-request", 50, "-recs", 10, "-version", version)),
            requests(),
            cpu_per_request(),
            partitions=50,
        )
    for version in (OLD_FETCH, NEW_FETCH):
        yield TopicLine(
            f"fetch-fifty{suffix(version)}",
            f"50 partitions a request, 20 KB each, Fetch v{version}, sessionless",
            Load(
                "fetch", ("-per-request", 50, "-partition-max-bytes", 20_000, "-version", version)
            ),
            megabytes(),
            partitions=50,
            fill=("-recs", 16, "-size", 1000, "-rotate"),
            fill_requests=5_000,
        )
    yield TopicLine(
        "session",
        f"session over 500 partitions of which 5 change, Fetch v{NEW_FETCH}",
        Load("session", ("-changing", 5, "-recs", 1, "-version", NEW_FETCH)),
        requests(),
        percentile("p50"),
        percentile("p99"),
        cpu_per_request(),
        partitions=500,
    )


def idle_lines() -> Iterator[Line]:
    for version in (OLD_FETCH, NEW_FETCH):
        session = ("-session",) if version == NEW_FETCH else ()
        yield TopicLine(
            f"pollers{suffix(version)}",
            f"200 idle consumers that long-poll every 500 ms, Fetch v{version}",
            Load("poll", ("-conns", 200, "-version", version, *session)),
            Figure("cpu", "broker CPU", "% of a core", None, "cpu_percent"),
            partitions=200,
            seconds_factor=2,
        )


def strict_lines() -> Iterator[Line]:
    strict = {"odradek.produce.validation": "strict"}
    yield TopicLine(
        "strict-tiny",
        "1 record a request, Odradek validating every record (strict)",
        Load("produce", ("-recs", 1)),
        requests(),
        odradek_configs=strict,
    )
    yield TopicLine(
        "strict-batch",
        "100 x 100 B a request, Odradek validating every record (strict)",
        Load("produce", ("-recs", 100)),
        records(),
        odradek_configs=strict,
    )


def flush_lines() -> Iterator[TopicLine]:
    """Every append is on the disk before its answer: how well answers share a flush."""
    bars = {(64, 1): at_least(10), (64, 64): at_least(3)}
    for partitions in (1, 64):
        for connections in (1, 64):
            rotate = ("-rotate",) if connections < partitions else ()
            yield TopicLine(
                f"flush-{connections}x{partitions}",
                f"flush.messages=1, {connections} connection{'s' * (connections > 1)}, "
                f"{partitions} partition{'s' * (partitions > 1)}, 1 record a request",
                Load("produce", ("-recs", 1, "-conns", connections, *rotate)),
                requests(bars.get((connections, partitions))),
                partitions=partitions,
                configs={"flush.messages": 1},
            )
