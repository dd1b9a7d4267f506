"""Settings as DescribeConfigs shows them: value, where it came from, and what else was given.

Judged by Apache Kafka 4.4: names, values, sources, types, read-only flags and synonyms are equal
(``tests/golden/configs_described.json``). Two habits of Kafka's look odd and are kept, because
tools compare: a default is a topic's own when the only broker setting given is a weaker synonym
(``retention.ms`` from ``log.retention.hours``), and the cluster's defaults show the text as given.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import NamedTuple

from broker.config.broker_config import BrokerConfig
from broker.config.broker_keys import BROKER_KEYS, DYNAMIC_ONLY, find_broker_key, synonyms_of
from broker.config.definition import ConfigKey, ConfigSource, ConfigType, Scope, render
from broker.config.group_keys import GROUP_KEYS
from broker.config.topic_config import topic_values
from broker.config.topic_keys import TOPIC_KEYS, UNITS_MS

Synonym = tuple[str, str | None, ConfigSource]


class ConfigEntry(NamedTuple):
    """One setting of a DescribeConfigs answer. ``value`` is None if there is none, or a secret."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    type: ConfigType
    documentation: str | None
    #: Everything that was given for the value, the strongest first; the first one holds.
    synonyms: tuple[Synonym, ...]

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


def describe_topic(
    overrides: Mapping[str, str], broker: BrokerConfig, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """All settings of a topic, or those among ``names`` that exist."""
    entries = dict(_topic_defaults(broker))
    for name, text in overrides.items():
        entries[name] = _overridden(name, text, broker)
    return _chosen(entries, names)


def describe_created_topic(overrides: Mapping[str, str], broker: BrokerConfig) -> list[ConfigEntry]:
    """The settings of a topic as a CreateTopics answer tells them: texts as given, no synonyms."""
    entries = dict(_created_defaults(broker))
    for name, text in overrides.items():
        entries[name] = _created_entry(name, text, ConfigSource.DYNAMIC_TOPIC_CONFIG)
    return _chosen(entries, None)


def describe_broker(
    broker: BrokerConfig, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """All settings of this broker, or those among ``names`` that exist."""
    return _chosen(_broker_entries(broker), names)


def describe_cluster_default(
    broker: BrokerConfig, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """The dynamic settings of all brokers together (the broker resource without a name)."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    entries = {}
    for name, text in broker.dynamic_default.items():
        key = find_broker_key(name)
        value = text if key and not key.is_sensitive else None
        synonyms = tuple(item for item in _broker_synonyms(name, broker) if item[2] is source)
        entries[name] = _entry(name, key, value, synonyms, is_read_only=_is_read_only(name))
    return _chosen(entries, names)


def describe_group(
    overrides: Mapping[str, str], broker: BrokerConfig, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """All settings of a consumer group, or those among ``names`` that exist."""
    entries = {}
    for name, key in GROUP_KEYS.items():
        inherited = _inherited(key, broker)
        if name in overrides:
            value = render(key.parse(overrides[name]))
            own: Synonym = (name, value, ConfigSource.DYNAMIC_GROUP_CONFIG)
            entries[name] = _entry(name, key, value, (own, *inherited), is_read_only=False)
        elif not key.is_internal:
            value = _broker_value(key.synonyms[0], broker)
            entries[name] = _entry(name, key, value, inherited, is_read_only=False)
    return _chosen(entries, names)


def _chosen(entries: Mapping[str, ConfigEntry], names: Collection[str] | None) -> list[ConfigEntry]:
    """An empty list of names asks for everything, as no list does."""
    if names:
        return [entries[name] for name in sorted(set(names)) if name in entries]
    return [entries[name] for name in sorted(entries)]


# What does not depend on the topic is worked out once for each BrokerConfig: a client may describe
# thousands of topics in one request.


@lru_cache(maxsize=4)
def _topic_defaults(broker: BrokerConfig) -> dict[str, ConfigEntry]:
    values = topic_values({}, broker)
    return {
        name: _entry(name, key, render(values[name]), _inherited(key, broker), is_read_only=False)
        for name, key in TOPIC_KEYS.items()
        if not key.is_internal
    }


def _inherited(key: ConfigKey | None, broker: BrokerConfig) -> tuple[Synonym, ...]:
    return _broker_synonyms(key.synonyms[0], broker) if key and key.synonyms else ()


def _overridden(name: str, text: str, broker: BrokerConfig) -> ConfigEntry:
    key = TOPIC_KEYS.get(name)
    value = None if key is None else render(key.parse(text))
    own: Synonym = (name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG)
    return _entry(name, key, value, (own, *_inherited(key, broker)), is_read_only=False)


@lru_cache(maxsize=4)
def _created_defaults(broker: BrokerConfig) -> dict[str, ConfigEntry]:
    return {
        name: _created_entry(name, *_as_given(key, broker))
        for name, key in TOPIC_KEYS.items()
        if not key.is_internal
    }


def _created_entry(name: str, value: str | None, source: ConfigSource) -> ConfigEntry:
    key = TOPIC_KEYS[name]
    return ConfigEntry(name, value, source, False, False, key.type, key.doc, ())


@lru_cache(maxsize=4)
def _broker_entries(broker: BrokerConfig) -> dict[str, ConfigEntry]:
    shown = [
        name
        for name, key in BROKER_KEYS.items()
        if name in broker.given or not (key.is_internal or name in DYNAMIC_ONLY)
    ]
    shown += [name for name in broker.given if name not in BROKER_KEYS]
    return {
        name: _entry(
            name,
            find_broker_key(name),
            _broker_value(name, broker),
            _broker_synonyms(name, broker),
            is_read_only=_is_read_only(name),
        )
        for name in shown
    }


def _entry(
    name: str,
    key: ConfigKey | None,
    value: str | None,
    synonyms: tuple[Synonym, ...],
    *,
    is_read_only: bool,
) -> ConfigEntry:
    return ConfigEntry(
        name=name,
        value=value,
        source=synonyms[0][2] if synonyms else ConfigSource.DEFAULT_CONFIG,
        is_read_only=is_read_only,
        # What nobody knows may be a secret.
        is_sensitive=key is None or key.is_sensitive,
        type=ConfigType.UNKNOWN if key is None else key.type,
        documentation=key.doc if key is not None and key.name == name else None,
        synonyms=synonyms,
    )


def _is_read_only(name: str) -> bool:
    key = BROKER_KEYS.get(name)
    return key is None or key.scope is Scope.READ_ONLY


def _broker_value(name: str, broker: BrokerConfig) -> str | None:
    key = find_broker_key(name)
    if key is None or key.is_sensitive:
        return None
    text = broker.given.get(name, key.default)
    return render(key.parse(text))


def _broker_synonyms(name: str, broker: BrokerConfig) -> tuple[Synonym, ...]:
    """What was given for ``name`` and its synonyms, layer by layer, from ``name`` itself on."""
    key = find_broker_key(name)
    is_sensitive = key is None or key.is_sensitive
    names = synonyms_of(name)
    found: list[Synonym] = []
    for layer, source in (
        (broker.dynamic_broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (broker.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (broker.static, ConfigSource.STATIC_BROKER_CONFIG),
        (_DEFAULTS, ConfigSource.DEFAULT_CONFIG),
    ):
        for synonym in names:
            if synonym in layer:
                found.append((synonym, None if is_sensitive else layer[synonym], source))
    first = next((index for index, item in enumerate(found) if item[0] == name), len(found))
    return tuple(found[first:])


_DEFAULTS = {
    name: key.default
    for name, key in BROKER_KEYS.items()
    if key.default is not None and name not in DYNAMIC_ONLY
}


def _as_given(key: ConfigKey, broker: BrokerConfig) -> tuple[str | None, ConfigSource]:
    for layer, source in (
        (broker.dynamic_broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (broker.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        (broker.static, ConfigSource.STATIC_BROKER_CONFIG),
    ):
        for synonym in key.synonyms:
            if synonym in layer:
                unit = UNITS_MS.get(synonym)
                text = layer[synonym]
                return text if unit is None else str(int(text) * unit), source
    return key.default, ConfigSource.DEFAULT_CONFIG
