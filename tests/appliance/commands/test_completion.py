"""What the shell is told when somebody presses TAB."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fixtures import Broker

REPOSITORY = Path(__file__).resolve().parents[3]


def completed(words: str, **environment: str) -> list[str]:
    line = ["odradek", *words.split(" ")]
    done = subprocess.run(
        [sys.executable, "-m", "appliance"],
        env={
            **os.environ,
            "_ODRADEK_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(line),
            "COMP_CWORD": str(len(line) - 1),
            **environment,
        },
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
    )
    return [each.partition(",")[2] for each in done.stdout.splitlines() if each]


def test_commands_are_completed_without_a_broker() -> None:
    assert completed("group de") == ["describe", "delete", "delete-offsets"]


@pytest.mark.parametrize("words", ["topic describe", "consume", "group delete-offsets g -t"])
def test_topics_are_completed_from_the_cluster_that_is_named(
    words: str, broker: Broker, topic: str
) -> None:
    assert completed(f"-b {broker.bootstrap} {words} {topic[:-1]}") == [topic]
    assert completed(f"{words} {topic[:-1]}", ODRADEK_BOOTSTRAP=broker.bootstrap) == [topic]


def test_without_an_answer_nothing_is_completed() -> None:
    assert completed("-b 127.0.0.1:1 topic describe t") == []
