"""Settings as DescribeConfigs shows them: value, where it came from, and what else was given.

Judged by Apache Kafka 4.4: names, values, sources, types, read-only flags and synonyms are equal
(``tests/golden/configs_described.json``). Two habits of Kafka's look odd and are kept, because
tools compare: a default is a topic's own when the only broker setting given is a weaker synonym
(``retention.ms`` from ``log.retention.hours``), and the cluster's defaults show the text as given.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from broker.config.broker_config import BrokerConfig
from broker.config.broker_keys import BROKER_KEYS, DYNAMIC_ONLY, find_broker_key, synonyms_of
from broker.config.definition import ConfigKey, ConfigSource, ConfigType, Scope, render
from broker.config.topic_config import topic_values
from broker.config.topic_keys import TOPIC_KEYS, UNITS_MS

Synonym = tuple[str, str | None, ConfigSource]


@dataclass(frozen=True, slots=True)
class ConfigEntry:
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
    known = {name: text for name, text in overrides.items() if name in TOPIC_KEYS}
    values = topic_values(known, broker)
    shown = [name for name, key in TOPIC_KEYS.items() if not key.is_internal or name in known]
    shown += [name for name in overrides if name not in TOPIC_KEYS]
    entries = []
    for name in _chosen(shown, names):
        key = TOPIC_KEYS.get(name)
        value = None if key is None else render(values[name])
        synonyms = _broker_synonyms(key.synonyms[0], broker) if key and key.synonyms else ()
        if name in overrides:
            synonyms = ((name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG), *synonyms)
        entries.append(_entry(name, key, value, synonyms, is_read_only=False))
    return entries


def describe_created_topic(overrides: Mapping[str, str], broker: BrokerConfig) -> list[ConfigEntry]:
    """The settings of a topic as a CreateTopics answer tells them: texts as given, no synonyms."""
    shown = [name for name, key in TOPIC_KEYS.items() if not key.is_internal or name in overrides]
    entries = []
    for name in sorted(shown):
        value, source = _as_given(TOPIC_KEYS[name], overrides, broker)
        key = TOPIC_KEYS[name]
        entries.append(ConfigEntry(name, value, source, False, False, key.type, key.doc, ()))
    return entries


def describe_broker(
    broker: BrokerConfig, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """All settings of this broker, or those among ``names`` that exist."""
    shown = [
        name
        for name, key in BROKER_KEYS.items()
        if name in broker.given or not (key.is_internal or name in DYNAMIC_ONLY)
    ]
    shown += [name for name in broker.given if name not in BROKER_KEYS]
    return [
        _entry(
            name,
            find_broker_key(name),
            _broker_value(name, broker),
            _broker_synonyms(name, broker),
            is_read_only=_is_read_only(name),
        )
        for name in _chosen(shown, names)
    ]


def describe_cluster_default(
    broker: BrokerConfig, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """The dynamic settings of all brokers together (the broker resource without a name)."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    entries = []
    for name in _chosen(broker.dynamic_default, names):
        key = find_broker_key(name)
        value = broker.dynamic_default[name] if key and not key.is_sensitive else None
        synonyms = tuple(item for item in _broker_synonyms(name, broker) if item[2] is source)
        entries.append(_entry(name, key, value, synonyms, is_read_only=_is_read_only(name)))
    return entries


def _chosen(shown: Iterable[str], names: Collection[str] | None) -> list[str]:
    """An empty list of names asks for everything, as no list does."""
    return sorted(name for name in shown if not names or name in names)


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


def _as_given(
    key: ConfigKey, overrides: Mapping[str, str], broker: BrokerConfig
) -> tuple[str | None, ConfigSource]:
    if key.name in overrides:
        return overrides[key.name], ConfigSource.DYNAMIC_TOPIC_CONFIG
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
