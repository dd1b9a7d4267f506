"""``has_effect`` in the tables says what is so: who claims an effect is read, who is read claims it."""

from __future__ import annotations

import ast
import functools
from dataclasses import fields
from pathlib import Path

from broker.config.broker_config import _FIELD_SETTINGS, BrokerConfig
from broker.config.broker_keys import BROKER_KEYS
from broker.config.topic_config import TopicConfig
from broker.config.topic_keys import TOPIC_KEYS

BROKER = Path(__file__).parents[3] / "broker"

FORGOTTEN = "nobody reads these: wire them, or take has_effect from broker/config, run `make docs`"

#: Read under another name than the setting's, or by config itself for the rest of the broker.
TOPIC_READ_AS = {
    "cleanup.policy": "is_deleted",
    "internal.segment.bytes": "segment_bytes",
    "message.timestamp.type": "is_log_append_time",
    "odradek.import.from": "import_from",
    "odradek.produce.validation": "validation_strict",
}
BROKER_READ_AS = {
    "broker.id": "node_id",
    "listener.security.protocol.map": "listeners",
    "log.dir": "log_dirs",
    **{
        f"group.consumer.{end}{what}.ms": f"{what.replace('.', '_')}_ms"
        for end in ("min.", "max.", "")
        for what in ("assignment.interval", "heartbeat.interval", "session.timeout")
    },
}


@functools.cache
def read_attributes() -> frozenset[str]:
    """Every attribute that is read anywhere in the broker but in its config package."""
    names: set[str] = set()
    for path in BROKER.rglob("*.py"):
        if BROKER / "config" not in path.parents:
            tree = ast.parse(path.read_text("utf-8"))
            names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return frozenset(names)


def topic_field(name: str) -> str:
    return TOPIC_READ_AS.get(name, name.replace(".", "_"))


def test_topic_settings_that_claim_an_effect_are_read() -> None:
    claims = {name for name, key in TOPIC_KEYS.items() if key.has_effect}
    assert {name for name in claims if topic_field(name) not in read_attributes()} == set(), (
        FORGOTTEN
    )


def test_broker_settings_that_claim_an_effect_are_read_or_are_defaults_of_such_topic_settings() -> (
    None
):
    defaults = {name for key in TOPIC_KEYS.values() if key.has_effect for name in key.synonyms}
    field_of = {setting: field for field, setting in _FIELD_SETTINGS.items()} | BROKER_READ_AS
    claims = {name for name, key in BROKER_KEYS.items() if key.has_effect} - defaults
    unread = {
        name
        for name in claims
        if field_of.get(name, name.replace(".", "_")) not in read_attributes()
    }
    assert unread == set(), FORGOTTEN


def test_settings_that_are_read_claim_an_effect() -> None:
    typed_topic = {field.name for field in fields(TopicConfig)}
    typed_broker = {field.name for field in fields(BrokerConfig)}
    topic_reads = {topic_field(name): key for name, key in TOPIC_KEYS.items()}
    broker_reads = {
        _FIELD_SETTINGS.get(field, field.replace("_", ".")): field for field in typed_broker
    }
    modest = {
        key.name
        for field, key in topic_reads.items()
        if field in typed_topic & read_attributes() and not key.has_effect
    } | {
        name
        for name, field in broker_reads.items()
        if field in read_attributes() and name in BROKER_KEYS and not BROKER_KEYS[name].has_effect
    }
    assert modest == set(), "read now: set has_effect=True in broker/config, run `make docs`"


def test_defaults_of_topic_settings_claim_what_the_topic_settings_claim() -> None:
    for key in TOPIC_KEYS.values():
        for name in key.synonyms:
            assert BROKER_KEYS[name].has_effect == key.has_effect, name


def test_every_field_belongs_to_a_setting() -> None:
    properties = {"static", "dynamic_default", "dynamic_broker", "given", "values", "ignored"}
    for field in fields(BrokerConfig):
        if field.name not in properties:
            name = _FIELD_SETTINGS.get(field.name, field.name.replace("_", "."))
            assert name in BROKER_KEYS
    topic_names = {topic_field(name) for name in TOPIC_KEYS} | {"cleanup_policy"}
    for field in fields(TopicConfig):
        assert field.name in topic_names | {"message_timestamp_type"}
