"""Our aliases beside the tools whose command lines they take."""

from collections.abc import Callable

from appliance.commands.kafka_tools import split_configs
from tests.appliance.conftest import Odradek
from tests.support.apache import run_tool
from tests.support.fixtures import Broker

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def comparable(description: str) -> list[str]:
    """Lines of a description; the tool lists settings in the order of a hash map."""
    lines = []
    for line in description.splitlines():
        head, found, configs = line.partition("Configs: ")
        lines.append(head + found + ",".join(sorted(configs.split(","))))
    return lines


def test_topics_are_described_as_by_the_tool(
    on_broker: Odradek, broker: Broker, topic: str
) -> None:
    server = ["--bootstrap-server", broker.bootstrap]
    on_broker("topic", "alter", topic, "--set", "retention.ms=7", "--set", "segment.ms=9").ok()
    theirs = run_tool("TopicCommand", [*server, "--describe", "--topic", topic]).ok()
    ours = on_broker("kafka-topics", *server, "--describe", "--topic", topic).ok()
    assert comparable(ours.out) == comparable(theirs.stdout)
    assert on_broker("topic", "describe", topic, "--format", "kafka").out == ours.out


def test_configs_are_described_as_by_the_tool(
    on_broker: Odradek, broker: Broker, topic: str
) -> None:
    arguments = ["--bootstrap-server", broker.bootstrap, "--describe", "--entity-type", "topics"]
    arguments += ["--entity-name", topic]
    on_broker(
        "kafka-configs", "--alter", "--entity-type", "topics", "--entity-name", topic,
        "--add-config", "cleanup.policy=[compact,delete],retention.ms=5",
    ).ok()  # fmt: skip
    for more in ([], ["--all"]):
        theirs = run_tool("ConfigCommand", [*arguments, *more]).ok()
        assert on_broker("kafka-configs", *arguments, *more).ok().lines == theirs.lines


def test_offsets_are_printed_as_by_the_tool(on_broker: Odradek, broker: Broker, topic: str) -> None:
    on_broker("produce", topic, "-p", 1, stdin=b"a\nb\n").ok()
    for moment in ("-1", "-2", "-3", "9999999999999"):
        arguments = ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--time", moment]
        theirs = run_tool("GetOffsetShell", arguments).ok()
        assert on_broker("kafka-get-offsets", *arguments).ok().out.split() == theirs.stdout.split()


def test_records_are_printed_as_by_the_tool(
    on_broker: Odradek, broker: Broker, new_topic_name: Callable[[], str]
) -> None:
    topic = new_topic_name()
    on_broker("kafka-topics", "--create", "--topic", topic, "--partitions", 1).ok()
    server = ["--bootstrap-server", broker.bootstrap, "--topic", topic]
    lines = b"h1:v1,h2:v2\tk\tone\nh:\t\ttwo\n"
    on_broker(
        "kafka-console-producer", *server, "--property", "parse.key=true",
        "--property", "parse.headers=true", stdin=lines,
    ).ok()  # fmt: skip
    on_broker("produce", topic, "-K", ":", "-Z", stdin=b"k:\n:v\n").ok()
    arguments = [*server, "--partition", "0", "--offset", "earliest", "--max-messages", "4"]
    for name in ("key", "timestamp", "partition", "offset", "headers"):
        arguments += ["--formatter-property", f"print.{name}=true"]
    theirs = run_tool(CONSUMER, arguments).ok()
    ours = on_broker("kafka-console-consumer", *arguments).ok()
    assert ours.lines == theirs.lines
    assert ours.err == "Processed a total of 4 messages\n"


def test_the_life_of_a_topic(on_broker: Odradek, new_topic_name: Callable[[], str]) -> None:
    name = new_topic_name()
    created = on_broker("kafka-topics.sh", "--create", "--topic", name, "--partitions", 2)
    assert created.ok().out == f"Created topic {name}.\n"
    assert on_broker("kafka-topics", "--create", "--topic", name).code == 1
    on_broker("kafka-topics", "--create", "--topic", name, "--if-not-exists").ok()
    assert name in on_broker("kafka-topics", "--list").ok().lines
    assert on_broker("kafka-topics", "--alter", "--topic", name, "--partitions", 3).ok().out == ""
    assert len(on_broker("kafka-topics", "--describe", "--topic", name).ok().lines) == 4
    on_broker("kafka-topics", "--delete", "--topic", name).ok()
    assert on_broker("kafka-topics", "--describe", "--topic", name).code == 1


def test_reading_stops_after_a_silence(on_broker: Odradek, topic: str) -> None:
    on_broker("produce", topic, stdin=b"a\n").ok()
    done = on_broker(
        "kafka-console-consumer", "--topic", topic, "--from-beginning", "--timeout-ms", 300
    ).ok()
    assert done.out == "a\n"


def test_what_is_not_mapped_is_wrong_usage(on_broker: Odradek, topic: str) -> None:
    assert on_broker("kafka-topics", "--list", "--create").code == 2
    assert on_broker("kafka-topics", "--unknown").code == 2
    group = ["--topic", topic, "--group", "g"]
    assert on_broker("kafka-console-consumer", *group, "--partition", 0).code == 2


def test_the_grammar_of_added_configs() -> None:
    assert split_configs("a=1,b=[x,y],c=") == [("a", "1"), ("b", "x,y"), ("c", "")]
