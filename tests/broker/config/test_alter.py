from __future__ import annotations

from typing import Any

import pytest

from broker.config.alter import (
    AlterOp,
    alter_broker,
    alter_topic,
    apply_incremental,
    replace_broker,
    replace_topic,
)
from broker.config.broker_config import BrokerConfig, resolve_broker_config
from broker.config.broker_keys import find_broker_key
from broker.config.definition import ConfigError, render
from broker.config.topic_keys import TOPIC_KEYS
from broker.model.error_code import ErrorCode
from tests.broker.config import golden

BROKER = resolve_broker_config({})
TOPIC = 2
#: An operation that does not exist: Kafka answers UNKNOWN_SERVER_ERROR.
NO_SUCH_OPERATION = [["segment.ms", 7, "1"]]


class Conversation:
    """The stored settings of one topic, of broker 1 and of the cluster, as steps change them."""

    def __init__(self) -> None:
        self.stored: dict[tuple[int, str], dict[str, str]] = {}

    def broker(self) -> BrokerConfig:
        return resolve_broker_config({}, self.stored.get((4, "")), self.stored.get((4, "1")))

    def step(self, request: str, kind: int, name: str, changes: list[Any]) -> int:
        current = self.stored.get((kind, name), {})
        try:
            self.stored[kind, name] = self._after(request, kind, name, changes, current)
        except ConfigError as error:
            return error.code
        return 0

    def _after(
        self, request: str, kind: int, name: str, changes: list[Any], current: dict[str, str]
    ) -> dict[str, str]:
        changes = [tuple(change) for change in changes]
        if kind == TOPIC:
            if request == "legacy":
                return replace_topic(changes, self.broker())
            return alter_topic(current, changes, self.broker())
        if request == "legacy":
            return replace_broker(changes, bool(name), self.broker())
        return alter_broker(current, changes, bool(name), self.broker())


def shown(kind: int, stored: dict[str, str]) -> dict[str, str | None]:
    """As DescribeConfigs shows it, which is how the conversation was captured."""
    out: dict[str, str | None] = {}
    for name, text in stored.items():
        key = TOPIC_KEYS.get(name) if kind == TOPIC else find_broker_key(name)
        out[name] = None if key is None else render(key.parse(text))
    return out


def test_a_long_conversation_goes_as_with_kafka() -> None:
    conversation = Conversation()
    for step in golden.load("altered"):
        kind, name, changes = step["kind"], step["name"], step["changes"]
        if name not in ("t", "1", "") or (kind, name) == (TOPIC, "") or step["code"] == "closed":
            continue  # resources that do not exist, and names: the controller's business
        code = step["code"] if changes != NO_SUCH_OPERATION else ErrorCode.INVALID_REQUEST
        assert conversation.step(step["request"], kind, name, changes) == code, step
        assert shown(kind, conversation.stored.get((kind, name), {})) == step["after"], step


def test_current_overrides_are_never_changed_in_place() -> None:
    current = {"cleanup.policy": "delete"}
    alter_topic(current, [("cleanup.policy", AlterOp.APPEND, "compact")], BROKER)
    assert current == {"cleanup.policy": "delete"}


def test_one_refused_change_refuses_them_all() -> None:
    with pytest.raises(ConfigError):
        alter_topic({}, [("segment.ms", 0, "1"), ("retention.ms", 0, "-5")], BROKER)


def test_too_long_value_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        alter_topic({}, [("compression.type", AlterOp.SET, "x" * 32768)], BROKER)
    assert caught.value.code == ErrorCode.INVALID_CONFIG
    with pytest.raises(ConfigError) as caught:
        replace_topic([("compression.type", "x" * 32768)], BROKER)
    assert caught.value.code == ErrorCode.INVALID_CONFIG


def test_appending_to_what_would_grow_too_long_is_refused() -> None:
    name = "leader.replication.throttled.replicas"
    current = {name: ",".join(f"{partition}:1" for partition in range(4000))}
    more = ",".join(f"{partition}:2" for partition in range(4000))
    with pytest.raises(ConfigError, match="longer than"):
        apply_incremental(current, [(name, AlterOp.APPEND, more)])


def test_hundred_thousand_changes_are_looked_at_once() -> None:
    changes = [(f"name.{index}", int(AlterOp.DELETE), None) for index in range(100_000)]
    assert apply_incremental({}, changes) == {}


def test_append_starts_from_the_default_of_an_unset_list() -> None:
    after = apply_incremental({}, [("cleanup.policy", AlterOp.APPEND, "compact")])
    assert after == {"cleanup.policy": "delete,compact"}


def test_subtract_takes_one_occurrence_away() -> None:
    name = "leader.replication.throttled.replicas"
    after = apply_incremental({name: "0:1,1:1,0:1"}, [(name, AlterOp.SUBTRACT, "0:1")])
    assert after == {name: "1:1,0:1"}
