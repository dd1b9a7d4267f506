"""ApiVersions: the door every client comes through (keys served, odd versions, odd names)."""

import struct

import pytest

from broker.protocol.api_versions import ApiKey
from tests.support.apache import ApacheKafka
from tests.support.odradek import REPOSITORY, OdradekBroker
from tests.support.wire import API_KEYS, Wire, encode_header, encode_request, versions

UNSUPPORTED_VERSION, INVALID_REQUEST = 35, 42
# What this stage serves; the other keys of Apache Kafka come with groups and security.
SERVED = (
    "produce",
    "fetch",
    "list_offsets",
    "metadata",
    "sasl_handshake",
    "api_versions",
    "create_topics",
    "delete_topics",
    "delete_records",
    "init_producer_id",
    "offset_for_leader_epoch",
    "add_partitions_to_txn",
    "add_offsets_to_txn",
    "write_txn_markers",
    "describe_transactions",
    "describe_configs",
    "alter_configs",
    "describe_log_dirs",
    "create_partitions",
    "incremental_alter_configs",
    "describe_cluster",
    "describe_producers",
    "list_config_resources",
    "describe_topic_partitions",
)


def ask(wire: Wire, version: int, name: str = "judge", software_version: str = "1.0"):
    return wire.request(
        "api_versions",
        version,
        client_software_name=name,
        client_software_version=software_version,
    )


@pytest.mark.parametrize("version", range(5))
def test_every_version_lists_the_same_ranges(wire: Wire, version: int) -> None:
    expected = versions(wire)
    answer = ask(wire, version)
    assert answer.error_code == 0
    found = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
    if version < 4:  # a feature whose range starts at 0 shows from version 4, keys do not differ
        assert found == expected
    assert API_KEYS["produce"] in found


def test_an_unknown_version_is_answered_in_the_oldest_layout(wire: Wire) -> None:
    # C003
    body = encode_header(18, 99, 7, "judge", flexible=True)
    wire.send_frame(body + b"\x06judge\x041.0\x00")
    answer = wire.receive_frame()
    correlation_id, error_code, count = struct.unpack_from(">ihi", answer)
    assert (correlation_id, error_code, count) == (7, UNSUPPORTED_VERSION, 1)
    key, least, most = struct.unpack_from(">hhh", answer, 10)
    assert key == 18
    assert least == 0
    assert most >= 4
    assert len(answer) == 16
    # The connection is as good as new.
    assert ask(wire, 3).error_code == 0
    assert ask(wire, 0).error_code == 0


def test_an_unknown_version_does_not_need_a_body_that_can_be_read(wire: Wire) -> None:
    wire.send_frame(encode_header(18, 99, 8, "judge", flexible=True) + b"\xff" * 20)
    answer = wire.receive_frame()
    assert struct.unpack_from(">ih", answer) == (8, UNSUPPORTED_VERSION)
    assert ask(wire, 3).error_code == 0


def test_the_response_header_never_carries_tags(wire: Wire) -> None:
    wire.send_bytes(
        encode_request(
            "api_versions", 3, 5, client_software_name="judge", client_software_version="1"
        )
    )
    answer = wire.receive_frame()
    # Correlation id, then at once the error code and the compact array of keys.
    assert answer[:6] == struct.pack(">ih", 5, 0)
    assert answer[6] > 1


@pytest.mark.parametrize(
    ("name", "software_version", "error_code"),
    [
        ("", "1.0", INVALID_REQUEST),
        ("judge", "", INVALID_REQUEST),
        ("-judge", "1.0", INVALID_REQUEST),
        ("judge-", "1.0", INVALID_REQUEST),
        ("jud ge", "1.0", INVALID_REQUEST),
        ("j" * 200, "1.0", 0),
        ("j", "1", 0),
        ("apache-kafka-java", "4.4.0", 0),
        ("a.b-c", "1.0-SNAPSHOT", 0),
    ],
)
def test_software_names_are_checked(
    wire: Wire, name: str, software_version: str, error_code: int
) -> None:
    assert ask(wire, 3, name, software_version).error_code == error_code
    assert ask(wire, 3).error_code == 0


def test_a_connection_may_ask_again_and_again(wire: Wire) -> None:
    for version in (3, 0, 2, 4, 3):
        assert ask(wire, version).error_code == 0


@pytest.mark.parametrize("api", ["produce", "fetch", "metadata", "create_topics"])
def test_a_version_beyond_the_range_ends_that_connection_only(
    broker: ApacheKafka | OdradekBroker, wire: Wire, api: str
) -> None:
    with Wire(broker.address) as other:
        other.send_frame(encode_header(API_KEYS[api], 99, 1, "judge", flexible=True) + b"\0" * 40)
        assert other.is_closed_by_peer()
    assert ask(wire, 3).error_code == 0


def test_an_unknown_key_ends_that_connection_only(
    broker: ApacheKafka | OdradekBroker, wire: Wire
) -> None:
    with Wire(broker.address) as other:
        other.send_frame(encode_header(4711, 0, 1, "judge", flexible=False))
        assert other.is_closed_by_peer()
    assert ask(wire, 3).error_code == 0


@pytest.mark.slow
def test_the_served_keys_have_the_ranges_of_apache_kafka(
    shared_apache: ApacheKafka, shared_odradek: OdradekBroker
) -> None:
    with Wire(shared_apache.address) as wire:
        theirs = versions(wire)
    with Wire(shared_odradek.address) as wire:
        ours = versions(wire)
    differences = {
        name: (ours.get(API_KEYS[name]), theirs[API_KEYS[name]])
        for name in SERVED
        if ours.get(API_KEYS[name]) != theirs[API_KEYS[name]]
    }
    # C183: topic ids everywhere or nowhere. kio has no ApiVersions v5, so the broker may stop at 4: docs/not_implemented.md.
    if differences.get("api_versions") == ((0, 4), (0, 5)):
        del differences["api_versions"]
    assert differences == {}
    assert set(ours) <= set(theirs)


@pytest.mark.slow
def test_what_apache_kafka_serves_beyond_is_told_with_a_reason(
    shared_apache: ApacheKafka, shared_odradek: OdradekBroker
) -> None:
    with Wire(shared_apache.address) as wire:
        theirs = versions(wire)
    with Wire(shared_odradek.address) as wire:
        ours = versions(wire)
    page = (REPOSITORY / "docs" / "not_implemented.md").read_text()
    fewer = {key for key, ranges in theirs.items() if ours.get(key) != ranges}
    names = {ApiKey(key).wire_name for key in fewer}
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_telemetry_is_not_offered_without_a_receiver(wire: Wire) -> None:
    assert {71, 72}.isdisjoint(versions(wire))


def test_sasl_handshake_on_a_plain_listener_is_answered_honestly(
    broker: ApacheKafka | OdradekBroker,
) -> None:
    with Wire(broker.address) as wire:
        answer = wire.request("sasl_handshake", 1, mechanism="PLAIN")
        assert answer.error_code == 34  # ILLEGAL_SASL_STATE
        assert answer.mechanisms == []
        assert ask(wire, 3).error_code == 0
