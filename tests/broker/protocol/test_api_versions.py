from __future__ import annotations

import pytest

from broker.protocol.api_versions import (
    SERVED,
    ApiKey,
    advertised,
    is_flexible,
    is_served,
    is_valid_client_software,
)


def test_produce_is_advertised_from_0_and_served_from_3() -> None:
    assert (0, 0, 13) in list(advertised())
    assert not is_served(ApiKey.PRODUCE, 2)
    assert is_served(ApiKey.PRODUCE, 3)


def test_only_what_is_served_is_advertised_in_the_order_of_keys() -> None:
    keys = [key for key, _, _ in advertised()]
    assert keys == sorted(SERVED)
    assert ApiKey.GET_TELEMETRY_SUBSCRIPTIONS not in keys


def test_topic_id_versions_rise_together() -> None:
    assert SERVED[ApiKey.METADATA].max_version >= 12
    assert SERVED[ApiKey.PRODUCE].max_version >= 13
    assert SERVED[ApiKey.FETCH].max_version >= 13


def test_unknown_api_is_neither_served_nor_flexible() -> None:
    assert not is_served(9999, 0)
    assert not is_flexible(9999, 0)
    assert not is_flexible(ApiKey.SASL_HANDSHAKE, 1)


def test_wire_names_are_those_of_kafka() -> None:
    assert ApiKey.OFFSET_FOR_LEADER_EPOCH.wire_name == "OffsetForLeaderEpoch"
    assert ApiKey.ADD_PARTITIONS_TO_TXN.wire_name == "AddPartitionsToTxn"


@pytest.mark.parametrize("text", ["a", "apache-kafka-java", "4.4.0", "x" * 200])
def test_client_software_that_is_taken(text: str) -> None:
    assert is_valid_client_software(text)


@pytest.mark.parametrize("text", ["", "-a", "a.", "a b", "ä", "a\n"])
def test_client_software_that_is_refused(text: str) -> None:
    assert not is_valid_client_software(text)
