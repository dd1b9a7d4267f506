"""What the broker tells of itself: counters by topic, the metrics endpoint, control commands."""

import http.client
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support import judge, processes, record_batches, requests
from tests.support.odradek import ControlError, OdradekBroker
from tests.support.requests import create_topic, produce_values
from tests.support.wire import Wire


def scrape(port: int, path: str = "/metrics") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def samples(text: str) -> dict[tuple[str, str], float]:
    """Value by name and topic (or directory, request, bound): the judge is Prometheus' own parser."""
    return {
        (sample.name, next(iter(sample.labels.values()), "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def told_topics(broker: OdradekBroker, since: int = 0) -> dict[str, Any]:
    """All pages of `topics`, and the broker's time of the first."""
    found: dict[str, Any] = {}
    answer: dict[str, Any] = {"next": 0}
    now = None
    while answer["next"] is not None:
        answer = broker.control("topics", **{"from": answer["next"], "since": since})
        now = answer["now"] if now is None else now
        for row in answer["topics"]:
            counters = dict(zip(answer["counters"], row["counters"], strict=True))
            found[row["name"]] = {**counters, "partitions": row["partitions"]}
    return {"topics": found, "now": now}


@pytest.fixture
def observed(start_odradek: Callable[..., OdradekBroker]) -> tuple[OdradekBroker, int]:
    port = judge.free_port()
    return start_odradek({"odradek.metrics.listen": f"127.0.0.1:{port}"}), port


def test_what_goes_in_and_out_is_counted_by_topic_and_in_all(
    observed: tuple[OdradekBroker, int],
) -> None:
    broker, port = observed
    with Wire(broker.address) as wire:
        name = create_topic(wire, partitions=2)
        produce_values(wire, name, [b"a", b"b", b"c"])
        size = len(requests.fetch(wire, name, 0).records)
        requests.fetch(wire, "no-such-topic", 0)

    told = told_topics(broker)["topics"][name]
    assert (told["bytes_in"], told["records_in"], told["produce_requests"]) == (size, 3, 1)
    assert (told["bytes_out"], told["records_out"], told["fetch_requests"]) == (size, 3, 1)
    assert told["partitions"] == [[0, 0, 3, size, 1], [1, 0, 0, 0, 1]]

    found = samples(scrape(port)[1])
    prefix = "kafka_server_brokertopicmetrics_"
    for topic in (name, ""):
        assert found[f"{prefix}bytesin_total", topic] == size
        assert found[f"{prefix}bytesout_total", topic] == size
        assert found[f"{prefix}messagesin_total", topic] == 3
        assert found[f"{prefix}failedfetchrequests_total", topic] == (0 if topic else 1)
    assert found["kafka_server_replicamanager_partitioncount", ""] == 2
    assert found["kafka_server_replicamanager_underreplicatedpartitions", ""] == 0
    assert found["kafka_network_requestmetrics_requests_total", "Produce"] == 1
    assert found["odradek_log_dir_free_bytes", str(broker.logs)] > 0
    assert (
        found["odradek_loop_lag_seconds_bucket", "+Inf"]
        == found["odradek_loop_lag_seconds_count", ""]
    )
    assert scrape(port, "/other")[0] == 404


def test_refused_batches_are_counted_as_failed(observed: tuple[OdradekBroker, int]) -> None:
    broker, _ = observed
    with Wire(broker.address) as wire:
        name = create_topic(wire, configs={"max.message.bytes": "100"})
        assert requests.try_produce(wire, name, record_batches.batch([b"x" * 1000])).error_code
    told = told_topics(broker)["topics"][name]
    assert (told["produce_requests"], told["failed_produce_requests"]) == (1, 1)
    assert told["bytes_in"] == 0


def test_topics_that_did_not_change_are_not_told_again(
    observed: tuple[OdradekBroker, int],
) -> None:
    broker, _ = observed
    with Wire(broker.address) as wire:
        quiet, busy = create_topic(wire), create_topic(wire)
        before = told_topics(broker)["now"]
        processes.wait_until(lambda: broker.control("node")["now"] > before, 10, "a second")
        now = told_topics(broker, before + 1)["now"]
        produce_values(wire, busy, [b"x"])

    assert busy in told_topics(broker, now)["topics"]
    assert quiet not in told_topics(broker, now)["topics"]


def test_partitions_of_a_topic_tell_segments_and_what_is_flushed(
    observed: tuple[OdradekBroker, int],
) -> None:
    broker, _ = observed
    with Wire(broker.address) as wire:
        name = create_topic(wire, partitions=2, configs={"segment.bytes": "1048576"})
        for _ in range(3):
            produce_values(wire, name, [b"x" * 600_000])
    broker.control("flush")

    first, second = broker.control("partitions", topic=name)["partitions"]
    assert [segment["base_offset"] for segment in first["segments"]] == [0, 1, 2]
    assert first["log_end_offset"] == first["flushed_offset"] == first["high_watermark"] == 3
    assert first["size_bytes"] > 1_800_000
    assert (second["log_end_offset"], second["offline_reason"], second["out_of_sync"]) == (
        0,
        None,
        [],
    )
    with pytest.raises(ControlError, match="no topic"):
        broker.control("partitions", topic="none")


def test_the_node_tells_disks_life_and_load(observed: tuple[OdradekBroker, int]) -> None:
    broker, _ = observed
    node = broker.control("node")
    (directory,) = node["log_dirs"]
    assert directory["path"] == str(broker.logs)
    assert directory["total_bytes"] > directory["free_bytes"] > 0
    assert node["is_ready"]
    assert node["pid"] == broker.pid
    assert node["listeners"][0]["port"] == broker.port
    assert node["traffic"]["bytes_in"] == 0


def test_a_broker_that_recovers_tells_how_far_it_is(tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.touch()
    port = judge.free_port()
    broker = OdradekBroker(
        tmp_path / "broker",
        {"odradek.metrics.listen": f"127.0.0.1:{port}"},
        program=("tests.support.held_broker", str(hold)),
    )
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(broker.start)
        try:
            processes.wait_until(
                lambda: (
                    (broker.data / "control.sock").exists()
                    and broker.control("node")["recovery"]["total"] > 0
                ),
                20,
                "recovery under way",
            )
            node = broker.control("node")
            assert (node["is_ready"], node["recovery"]) == (False, {"opened": 3, "total": 7})
            assert node["log_dirs"][0]["total_bytes"] > 0
            with pytest.raises(ControlError, match="3 of 7 logs"):
                broker.control("topics")
            assert samples(scrape(port)[1])["odradek_recovery_logs_total", ""] == 7
        finally:
            hold.unlink()
            starting.result(60)
    assert broker.control("node")["is_ready"]
    broker.close()


def test_the_metrics_listen_on_loopback_only(start_odradek: Callable[..., OdradekBroker]) -> None:
    with pytest.raises(AssertionError, match="not an address of loopback"):
        start_odradek({"odradek.metrics.listen": "0.0.0.0:0"})
