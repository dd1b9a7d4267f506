from appliance.health import judge
from dashboard.cluster import BrokerView, ClusterView, PartitionView, TopicView


def partition(
    index: int,
    leader: int | None = 1,
    isr: tuple[int, ...] = (1, 2),
    replicas: tuple[int, ...] = (1, 2),
) -> PartitionView:
    return PartitionView(index, leader, 0, replicas, isr)


def cluster(
    *partitions: PartitionView, controller: int | None = 1, brokers: tuple[int, ...] = (1, 2)
) -> ClusterView:
    return ClusterView(
        "c",
        controller,
        tuple(BrokerView(broker, "127.0.0.1", 9092) for broker in brokers),
        (TopicView("t", None, False, partitions),),
    )


def test_a_cluster_in_order_is_healthy() -> None:
    health = judge(cluster(partition(0)), {"t": 1})
    assert health.is_healthy
    assert health.as_text(0).startswith("HEALTHY               yes\n")


def test_every_kind_of_trouble_is_named_with_its_partitions() -> None:
    health = judge(
        cluster(partition(0, leader=None, isr=(1,)), partition(1, isr=(1,)), partition(2)), {"t": 2}
    )
    assert health.leaderless == ("t-0",)
    assert health.under_replicated == ("t-0", "t-1")
    assert health.under_min_isr == ("t-0", "t-1")
    assert health.reasons == [
        "1 partition without a leader",
        "2 partitions with replicas behind",
        "2 partitions below min.insync.replicas",
    ]


def test_a_broker_that_holds_replicas_and_is_not_there_is_missing() -> None:
    health = judge(cluster(partition(0, isr=(1,)), brokers=(1,)), {})
    assert health.expected_brokers == (1, 2)
    assert "brokers are missing: 2" in health.reasons


def test_no_controller_is_unhealthy() -> None:
    assert judge(cluster(controller=None), {}).reasons == ["there is no controller"]


def test_long_lists_are_cut_in_text_only() -> None:
    health = judge(cluster(*(partition(i, isr=(1,)) for i in range(25))), {})
    assert "and 5 more" in health.as_text(0)
    assert len(health.as_object()["under_replicated"]) == 25
