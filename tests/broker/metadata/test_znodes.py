"""Paths and values are those that Kafka documents for ZooKeeper; each value reads back."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.metadata import znodes
from broker.metadata.image import BrokerImage, Endpoint
from broker.metadata.znodes import PartitionState, ProducerIdBlock, TopicAssignment
from broker.model.ids import BrokerId

TOPIC_ID = uuid.UUID("4e28b3bd-e38c-4b7f-9a9f-2c1ff5d2f7a1")
ONE, TWO = BrokerId(1), BrokerId(2)


def test_paths_are_kafkas() -> None:
    assert znodes.topic_path("t") == "/brokers/topics/t"
    assert znodes.partitions_path("t") == "/brokers/topics/t/partitions"
    assert znodes.partition_path("t", 3) == "/brokers/topics/t/partitions/3"
    assert znodes.partition_state_path("t", 3) == "/brokers/topics/t/partitions/3/state"
    assert znodes.topic_config_path("t") == "/config/topics/t"
    assert znodes.broker_config_path(None) == "/config/brokers/<default>"
    assert znodes.broker_config_path(ONE) == "/config/brokers/1"
    assert znodes.broker_path(ONE) == "/brokers/ids/1"


def test_values_are_kafkas() -> None:
    assignment = TopicAssignment(TOPIC_ID, {0: (ONE, TWO), 1: (TWO, ONE)})
    assert znodes.encode_topic(assignment) == (
        b'{"version":3,"partitions":{"0":[1,2],"1":[2,1]},"adding_replicas":{},'
        b'"removing_replicas":{},"topic_id":"TiizveOMS3-anywf9dL3oQ"}'
    )
    assert znodes.encode_partition_state(PartitionState(ONE, 4, 7, (ONE, TWO))) == (
        b'{"version":1,"leader":1,"leader_epoch":4,"controller_epoch":7,"isr":[1,2]}'
    )
    assert znodes.encode_configs({"retention.ms": "86400000"}) == (
        b'{"version":1,"config":{"retention.ms":"86400000"}}'
    )
    assert znodes.encode_cluster_id("MkU3OEVBNTcwNTJENDM2Qg") == (
        b'{"version":"1","id":"MkU3OEVBNTcwNTJENDM2Qg"}'
    )
    assert znodes.encode_controller(ONE, 1700) == (
        b'{"version":2,"brokerid":1,"timestamp":"1700","kraftControllerEpoch":-1}'
    )
    assert znodes.encode_controller_epoch(7) == b"7"
    assert znodes.encode_producer_ids(ProducerIdBlock(ONE, 0, 999)) == (
        b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}'
    )
    endpoints = (Endpoint("CLIENT", "h", 9092, "SASL_SSL"), Endpoint("REPL", "::1", 9093, "SSL"))
    assert znodes.encode_broker(BrokerImage(ONE, 5, endpoints, "az1"), 1700) == (
        b'{"version":5,"host":null,"port":-1,"jmx_port":-1,"timestamp":"1700",'
        b'"endpoints":["CLIENT://h:9092","REPL://[::1]:9093"],'
        b'"listener_security_protocol_map":{"CLIENT":"SASL_SSL","REPL":"SSL"},'
        b'"features":{},"rack":"az1"}'
    )


broker_ids = st.integers(0, 2**31 - 1).map(BrokerId)
replicas = st.lists(broker_ids, min_size=1, max_size=5, unique=True).map(tuple)
epochs = st.integers(0, 2**31 - 1)
hosts = st.sampled_from(["h", "a.example", "10.0.0.1", "::1", "fe80::1%eth0"])


@given(st.uuids(), st.lists(replicas, max_size=5))
def test_topics_read_back(topic_id: uuid.UUID, assignments: list[tuple[BrokerId, ...]]) -> None:
    assignment = TopicAssignment(topic_id, dict(enumerate(assignments)))
    assert znodes.decode_topic(znodes.encode_topic(assignment)) == assignment
    assert znodes.parse_topic_id(znodes.topic_id_text(topic_id)) == topic_id


@given(broker_ids, epochs, epochs, replicas)
def test_partition_states_read_back(
    leader_id: BrokerId, leader_epoch: int, controller_epoch: int, isr: tuple[BrokerId, ...]
) -> None:
    state = PartitionState(leader_id, leader_epoch, controller_epoch, isr)
    assert znodes.decode_partition_state(znodes.encode_partition_state(state)) == state


@given(st.dictionaries(st.text(), st.text()))
def test_configs_read_back(configs: dict[str, str]) -> None:
    assert znodes.decode_configs(znodes.encode_configs(configs)) == configs


@given(
    st.lists(
        st.builds(Endpoint, st.sampled_from("ABC"), hosts, st.integers(1, 65535), st.just("SSL")),
        unique_by=lambda endpoint: endpoint.listener,
    ),
    st.none() | st.text(),
)
def test_brokers_read_back(endpoints: list[Endpoint], rack: str | None) -> None:
    broker = BrokerImage(ONE, 7, tuple(endpoints), rack)
    assert znodes.decode_broker(ONE, 7, znodes.encode_broker(broker, 1700)) == broker


def test_the_first_plain_endpoint_is_the_brokers_host_and_port() -> None:
    endpoints = (Endpoint("A", "a", 1, "SSL"), Endpoint("B", "b", 2, "PLAINTEXT"))
    data = znodes.encode_broker(BrokerImage(ONE, 5, endpoints), 1700)
    assert b'"host":"b","port":2' in data


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"7", b"{}"])
def test_damage_is_an_error(data: bytes) -> None:
    for decode in (
        znodes.decode_topic,
        znodes.decode_partition_state,
        znodes.decode_configs,
        znodes.decode_cluster_id,
        znodes.decode_controller,
        znodes.decode_producer_ids,
    ):
        with pytest.raises(ValueError):
            decode(data)
