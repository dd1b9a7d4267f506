"""The demo finds the appliance that runs on its data directory, and says what it leaves out."""

from collections.abc import Callable

from appliance import demo
from dashboard.cluster import KafkaFailure
from dashboard.gateway import Gateway
from tests.appliance.conftest import run_odradek
from tests.support.odradek import OdradekBroker


def has_topics(broker: OdradekBroker) -> bool:
    found = Gateway(broker.bootstrap).topics(demo.TOPICS)
    return not any(isinstance(view, KafkaFailure) for view in found.values())


def test_the_broker_of_the_data_directory_is_found_on_whichever_port_it_listens(
    start_odradek: Callable[..., OdradekBroker],
) -> None:
    broker = start_odradek()
    done = run_odradek(broker.data, "demo", "--for", "1s", "--rate", "50").ok()
    assert "events were written" in done.err
    assert "left out: the two reports" in done.err  # no dashboard has made its tables here
    assert has_topics(broker)


def test_without_one_it_is_the_cluster_that_is_named_or_kafkas_own_port(
    start_odradek: Callable[..., OdradekBroker],
) -> None:
    broker = start_odradek()
    elsewhere = broker.data.parent / "elsewhere"
    elsewhere.mkdir()
    run_odradek(elsewhere, "demo", "--for", "1s", "-b", broker.bootstrap).ok()
    assert has_topics(broker)
