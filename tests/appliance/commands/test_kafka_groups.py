"""Our kafka-consumer-groups beside the tool whose command lines it takes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.appliance.commands.test_group import (
    Join,
    committed,
    filled,
    group,
    join,
    offsets,
)
from tests.appliance.conftest import Done, Odradek
from tests.support.apache import ToolRun, run_tool
from tests.support.fixtures import Broker

__all__ = ["committed", "filled", "group", "join"]

TOOL = "consumer.group.ConsumerGroupCommand"
Both = Callable[..., tuple[Done, ToolRun]]


@pytest.fixture
def both(on_broker: Odradek, broker: Broker) -> Both:
    """The same command line to ours and to the tool."""

    def run(*arguments: object) -> tuple[Done, ToolRun]:
        line = ["--bootstrap-server", broker.bootstrap, *arguments]
        theirs = run_tool(TOOL, line)
        return on_broker("kafka-consumer-groups", *line), theirs

    return run


def rows(text: str) -> list[str]:
    """Lines without the spaces at their ends; the tool lists in the order of a hash map."""
    first, *others = [line.rstrip() for line in text.splitlines() if line.strip()]
    return [first, *sorted(others)]


@pytest.mark.parametrize(
    "arguments",
    [[], ["--offsets", "--verbose"], ["--members"], ["--members", "--verbose"], ["--state"]],
    ids=lambda arguments: " ".join(arguments) or "default",
)
def test_groups_with_members_are_described_as_by_the_tool(
    arguments: list[str], both: Both, committed: str, filled: str, join: Join
) -> None:
    join(committed, filled, group_instance_id="first")
    ours, theirs = both("--describe", "--group", committed, *arguments)
    assert rows(ours.ok().out) == rows(theirs.stdout)


@pytest.mark.parametrize("arguments", [[], ["--members"], ["--state", "--verbose"]])
def test_groups_without_members_are_described_as_by_the_tool(
    arguments: list[str], both: Both, committed: str
) -> None:
    ours, theirs = both("--describe", "--group", committed, *arguments)
    assert rows(ours.ok().out) == rows(theirs.stdout)
    assert ours.err == theirs.stderr + "\n"


def test_groups_are_listed_as_by_the_tool(
    both: Both, committed: str, filled: str, join: Join, new_topic_name: Callable[[], str]
) -> None:
    join(new_topic_name(), filled)
    for arguments in ([], ["--state"], ["--type"], ["--state", "empty", "--type", "classic"]):
        ours, theirs = both("--list", *arguments)
        assert sorted(ours.ok().lines) == sorted(theirs.lines)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--to-earliest"],
        ["--to-latest"],
        ["--to-current"],
        ["--to-offset", "5"],
        ["--to-datetime", "2100-01-01T00:00:00.000"],
        ["--by-duration", "PT1H"],
        ["--shift-by", "-2"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_every_target_goes_where_the_tool_goes(
    arguments: list[str], both: Both, committed: str, filled: str
) -> None:
    for scope in (["--all-topics"], ["--topic", f"{filled}:1,0"]):
        ours, theirs = both("--reset-offsets", "--group", committed, *arguments, *scope)
        # The tool warns on standard output that a log has no such time.
        told = [line for line in theirs.lines if not line.startswith("Warn: ")]
        assert rows(ours.ok().out) == rows("\n".join(told))


def test_plans_are_exchanged_with_the_tool(
    both: Both, on_broker: Odradek, broker: Broker, committed: str, tmp_path: Path
) -> None:
    export = ["--reset-offsets", "--group", committed, "--to-current", "--all-topics", "--export"]
    ours, theirs = both(*export)
    assert sorted(ours.ok().lines) == sorted(line for line in theirs.lines if line)
    path = tmp_path / "plan.csv"
    path.write_text(ours.out)
    on_broker("group", "seek", committed, "--to", "end", "--execute").ok()
    run_tool(
        TOOL,
        [
            *("--bootstrap-server", broker.bootstrap, "--reset-offsets", "--execute"),
            *("--group", committed, "--from-file", path),
        ],
    ).ok()
    again = on_broker("kafka-consumer-groups", *export).ok()
    assert again.out == ours.out
    on_broker("group", "seek", committed, "--to", "end", "--execute").ok()
    restored = ["--reset-offsets", "--group", committed, "--from-file", path, "--execute"]
    on_broker("kafka-consumer-groups", *restored).ok()
    assert on_broker("kafka-consumer-groups", *export).ok().out == ours.out


def test_the_end_of_a_group(on_broker: Odradek, committed: str, filled: str) -> None:
    def run(*arguments: object) -> Done:
        return on_broker("kafka-consumer-groups", *arguments, "--group", committed)

    forgotten = run("--delete-offsets", "--topic", f"{filled}:0").ok()
    assert forgotten.lines[0] == f"Request succeeded for deleting offsets from group {committed}."
    assert forgotten.lines[-1].split() == [filled, "0", "Successful"]
    gone = run("--delete").ok()
    assert gone.out == f"Deletion of requested consumer groups ('{committed}') was successful.\n"
    assert run("--delete").code == 1
    assert run("--describe").code == 1


def test_the_console_consumer_reads_in_a_group(on_broker: Odradek, group: str, filled: str) -> None:
    read = ["kafka-console-consumer", "--topic", filled, "--group", group, "--from-beginning"]
    first = on_broker(*read, "--max-messages", 4).ok().lines
    rest = on_broker(*read, "--max-messages", 10).ok().lines
    assert sorted(first + rest) == sorted([*map(str, range(10)), *map(str, range(4))])
    assert offsets(on_broker, group) == {0: 10, 1: 4}


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--list", "--describe", "--group", "g"],
        ["--describe"],
        ["--describe", "--group", "g", "--state", "stable"],
        ["--describe", "--group", "g", "--state", "--members"],
        ["--list", "--state", "bored"],
        ["--reset-offsets", "--group", "g", "--to-latest"],
        ["--reset-offsets", "--group", "g", "--topic", "t"],
        ["--reset-offsets", "--group", "g", "--topic", "t", "--to-latest", "--to-earliest"],
        ["--delete-offsets", "--group", "g"],
        ["--delete-offsets", "--group", "g", "--group", "h", "--topic", "t"],
    ],
)
def test_wrong_words_are_wrong_usage(arguments: list[str], odradek: Odradek) -> None:
    assert odradek("-b", "127.0.0.1:1", "kafka-consumer-groups", *arguments).code == 2
