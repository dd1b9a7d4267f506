"""Three brokers and a ZooKeeper on the pages: who leads, who lags and since when, and a failover."""

import re
import signal
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from axe_playwright_python.base import AXE_SCRIPT
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from playwright.sync_api import expect

from tests.support import processes, requests
from tests.support.browser import Visitor, screenshot
from tests.support.cluster import Cluster
from tests.support.processes import wait_until
from tests.support.replicated import (
    create_topic,
    partitions_of,
    produce_values,
    wait_for_isr,
)
from tests.support.web import WebProcess, post
from tests.support.wire import Wire
from tests.support.zookeeper import ZooKeeper

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with (
        ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as zookeeper,
        Cluster(tmp_path_factory.mktemp("cluster"), zookeeper, "/pages") as cluster,
    ):
        yield cluster


def test_a_broker_that_is_killed_is_seen_with_all_that_follows(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    killed = next(number for number in cluster.brokers if number != cluster.controller())
    watching = next(number for number in cluster.brokers if number != killed)
    broker = cluster.brokers[watching]
    with Wire(cluster.brokers[cluster.controller()].address, timeout=30) as wire:
        name = requests.new_topic_name()
        topic = {"name": name, "num_partitions": 6, "replication_factor": 3}
        wire.request("create_topics", 7, timeout=30_000, topics=[topic])
    web = WebProcess(tmp_path_factory.mktemp("web"), cluster.bootstrap, data=broker.data)
    with web, web.client("vera") as client:

        def says(path: str, *words: str) -> bool:
            text = " ".join(re.sub("<[^>]*>", " ", client.get(path).text).split())
            return all(word in text for word in words)

        def wait(path: str, *words: str) -> None:
            wait_until(lambda: says(path, *words), 60, f"{words} on {path}", every=0.2)

        wait(f"topics/?q={name}", name)
        wait("brokers/", "controller", f"ZooKeeper session of broker {watching}: connected since")
        wait(f"brokers/{watching}/", "/pages", "connected since", "after the last sign of life")
        wait("", "No broker went or came and no partition got another leader")

        cluster.brokers[killed].kill9()
        wait("", "failover", f"led by broker {killed} before", f"Broker {killed} left the cluster.")
        wait("brokers/", "not in the cluster")
        wait("problems/?kind=under_replicated", name, f"broker {killed}: 0 records behind, since 2")
        wait(
            "problems/?kind=under_replicated",
            f"broker {killed}: behind by an unknown number",
            "before",
        )
        wait("brokers/", "6 replicas not in sync")
        wait(f"brokers/{killed}/", "6 replicas not in sync")
        wait(
            f"topics/{name}/",
            f"broker {killed}: 0 records behind, since 2",
            f"{killed} out of sync",
        )

        cluster.brokers[killed].start()
        wait("", f"Broker {killed} joined the cluster.")
        wait("problems/", "Every partition has a leader and all its replicas in sync")


def test_a_broker_that_hangs_is_named_with_how_far_it_is_behind_and_since_when(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, chromium: Any
) -> None:
    topic = create_topic(cluster, 3)
    hanging = next(number for number in cluster.brokers if number != cluster.controller())
    watching = next(number for number in cluster.brokers if number != hanging)
    # One of whose leader stays.
    led = {each.leader_id: each.partition_index for each in partitions_of(cluster, topic)}
    web = WebProcess(
        tmp_path_factory.mktemp("web"), cluster.bootstrap, data=cluster.brokers[watching].data
    )
    with web, web.client("olga") as client:
        process = cluster.brokers[hanging].process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        try:
            produce_values(cluster, topic, ["x"] * 1204, led[watching])

            def names_it() -> bool:
                told = text_of(client, f"problems/?broker={hanging}")
                return f"broker {hanging}: 1 204 records behind, since " in told

            wait_until(names_it, 60, "the broker that hangs", every=0.2)
            told = client.get(f"api/v1/topics/{topic}").json()["partitions"][led[watching]]
            (lagging,) = told["lagging"]
            assert (lagging["broker"], lagging["lag"], lagging["since_is_exact"]) == (
                hanging,
                1204,
                True,
            )
            visitor = Visitor(chromium, web, "olga")
            page = visitor.page
            for path, name in (
                ("problems/", "lagging-problems"),
                ("brokers/", "lagging-brokers"),
                (f"brokers/{hanging}/", "lagging-broker"),
                (f"topics/{topic}/", "lagging-topic"),
            ):
                page.goto(path)
                found = page.get_by_text(re.compile("records? behind, since|not in sync"))
                expect(found.first).to_be_visible()
                in_all_looks(page, name)
                assert serious_violations(page) == []
            visitor.close()
        finally:
            process.send_signal(signal.SIGCONT)
        wait_for_isr(cluster, topic, set(cluster.brokers))
        wait_until(
            lambda: "not in sync" not in text_of(client, "brokers/"), 60, "all in sync", every=0.2
        )


def serious_violations(page: Any) -> list[str]:
    """By axe, in light and in dark."""
    page.evaluate(AXE_SCRIPT)
    found: list[str] = []
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        run = page.evaluate("axe.run({resultTypes: ['violations']}).then(run => run.violations)")
        found += [
            f"{scheme}: {one['help']}: {one['nodes'][0]['html'][:200]}"
            for one in run
            if one["impact"] in ("serious", "critical")
        ]
    return found


def text_of(client: httpx.Client, path: str) -> str:
    return " ".join(re.sub("<[^>]*>", " ", client.get(path).text).split())


def move(client: httpx.Client, query: str) -> None:
    """A plan, confirmed as it was shown; again where the cluster has changed meanwhile."""
    path = f"brokers/moves/plan?{query}"

    def has_begun() -> bool:
        shown = client.get(path).text
        found = re.search('name="digest" value="([0-9a-f]+)"', shown)
        return (
            found is not None and "began to move." in post(client, path, {"digest": found[1]}).text
        )

    wait_until(has_begun, 60, query, every=0.2)


def test_partitions_are_moved_and_leaders_elected_by_the_pages(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, chromium: Any
) -> None:
    topic = create_topic(cluster, replicas=[3, 1])
    produce_values(cluster, topic, [f"{number} {'x' * 2000}" for number in range(3000)])
    throttle(cluster, topic, 2, "1000")
    data = cluster.brokers[1].data
    web = WebProcess(tmp_path_factory.mktemp("web"), cluster.bootstrap, data=data)
    with web, web.client("olga") as client:

        def wait(*words: str, of: httpx.Client = client) -> None:
            processes.wait_until(
                lambda: all(word in text_of(of, "brokers/moves/") for word in words),
                60,
                f"{words} on the page of moves",
                every=0.2,
            )

        wait("Nothing is being moved.", "Every partition is led by its first replica.")
        changed = post(client, "brokers/moves/plan?what=leave&broker=3", {"digest": "0"})
        assert "The cluster has changed since the plan was shown" in changed.text
        visitor = Visitor(chromium, web, "olga")
        page = visitor.page
        page.goto("brokers/moves/")
        form = page.get_by_role("form", name="Empty a broker")
        form.get_by_role("combobox").select_option("3")
        form.get_by_role("button").click()
        expect(page.get_by_role("row", name=f"{topic}-0")).to_have_text(
            re.compile(r"3\s*1\s*2\s*1")
        )
        in_all_looks(page, "moves-plan")
        page.get_by_role("button", name=re.compile("^Move")).click()
        expect(page.get_by_text("began to move.")).to_be_visible()
        expect(page.get_by_role("meter", name=f"Copied of {topic}-0 to broker 2")).to_be_visible()
        wait("has not grown since")
        page.reload()
        in_all_looks(page, "moves")
        with web.client("vera") as viewer:
            wait(f"{topic}-0", of=viewer)
            assert "Cancel" not in text_of(viewer, "brokers/moves/")
        page.get_by_role("link", name=f"Cancel the move of {topic}-0").click()
        in_all_looks(page, "moves-cancel")
        page.get_by_role("button", name="Take it back").click()
        expect(page.get_by_text("1 partition: stay where they were.")).to_be_visible()
        wait("Nothing is being moved.")
        throttle(cluster, topic, 2, None)
        move(client, "what=leave&broker=3")
        wait("Nothing is being moved.")
        assert "Nothing is to be moved." in text_of(
            client, "brokers/moves/plan?what=leave&broker=3"
        )
        (left,) = partitions_of(cluster, topic)
        assert set(left.replica_nodes) == {1, 2}
        # Another first replica, which leads only once it is elected.
        other = 3 - left.leader_id
        query = f"what=move&topic={topic}&partition=0&replicas={other},{left.leader_id}"
        move(client, query)
        wait(f"{topic}-0 {left.leader_id} {other} can lead")
        page.goto("brokers/moves/")
        in_all_looks(page, "moves-preferred")
        page.get_by_role("link", name=f"Elect broker {other} for {topic}-0").click()
        in_all_looks(page, "leaders-elect")
        page.get_by_role("button", name="Elect").click()
        expect(page.get_by_text("are led by their first replica.")).to_be_visible()
        wait("Every partition is led by its first replica.")
        audited = client.get("audit/").text
        for action in ("partition.reassign", "partition.reassign_cancel", "leader.elect"):
            assert action in audited
        for query, words in (
            (f"what=move&topic={topic}&partition=0&replicas=1,1", "A broker is named twice."),
            (f"what=move&topic={topic}&partition=7&replicas=1", "There is no partition 7"),
            (f"what=move&topic={topic}&partition=0&replicas=9", "There is no broker 9."),
            (f"what=move&topic={topic}&partition=0&replicas=one", "Replicas are numbers"),
        ):
            assert words in text_of(client, f"brokers/moves/plan?{query}")
        visitor.close()


def throttle(cluster: Cluster, topic: str, broker: int, rate: str | None) -> None:
    """Of what this broker copies of the topic; None: none."""
    with Wire(cluster.brokers[broker].address, timeout=30) as wire:
        named = "*" if rate else ""
        requests.alter_config(wire, topic, "follower.replication.throttled.replicas", named)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    entry = ConfigEntry(
        "follower.replication.throttled.rate",
        rate,
        incremental_operation=AlterConfigOpType.SET if rate else AlterConfigOpType.DELETE,
    )
    resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)


def in_all_looks(page: Any, name: str) -> None:
    """Nothing runs over the side in any look; pictures where they are wanted."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for width in (1440, 390):
            page.set_viewport_size({"width": width, "height": 900})
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"{name} is {wide} wide"
            screenshot(page, f"{name}-{scheme}-{width}")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1440, "height": 900})
