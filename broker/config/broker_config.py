"""What this broker was told: static settings under dynamic ones, resolved and typed.

Three maps of text give a ``BrokerConfig``: the static settings (file and command line), the
cluster-wide dynamic defaults and the dynamic settings of this broker, later ones being stronger.
The maps are kept, because DescribeConfigs shows where each value came from. A dynamic change makes
a new ``BrokerConfig``; nothing here is ever changed in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from broker.config.broker_checks import (
    check_dynamic,
    check_dynamic_names,
    check_together,
    parse_overrides,
)
from broker.config.broker_keys import BROKER_KEYS, find_broker_key, synonyms_of
from broker.config.definition import ConfigError, ConfigValue, Scope
from broker.config.listeners import (
    Listener,
    check_distinct_ports,
    parse_listeners,
    parse_loopback,
    parse_protocol_map,
)
from broker.config.properties import parse_properties
from broker.model.error_code import ErrorCode

__all__ = [
    "BrokerConfig",
    "parse_properties",
    "resolve_broker_config",
    "validate_broker_dynamic",
]

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000

#: Kafka has no default for these and refuses to start; a single node of ours needs no such care.
_DEFAULT_NODE_ID = "1"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BrokerConfig:
    """Typed settings that the broker uses. Field names are Kafka's with underscores for dots.

    Compared by identity: a change always makes a new object.
    """

    static: Mapping[str, str]
    dynamic_default: Mapping[str, str]
    dynamic_broker: Mapping[str, str]
    #: The three maps in one, the stronger over the weaker.
    given: Mapping[str, str]
    #: Every setting's value, parsed; of settings in several units the finest holds the effect.
    values: Mapping[str, ConfigValue]
    #: Stored dynamic settings that cannot be used; the server logs them.
    ignored: tuple[ConfigError, ...]

    node_id: int
    broker_rack: str | None
    log_dirs: tuple[str, ...]
    #: Parsed; ``advertised_listeners`` is empty when nothing was told.
    listeners: tuple[Listener, ...]
    advertised_listeners: tuple[Listener, ...]

    num_partitions: int
    default_replication_factor: int
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    max_request_partition_size_limit: int

    socket_request_max_bytes: int
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
    socket_listen_backlog_size: int
    queued_max_request_bytes: int
    queued_max_requests: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: Mapping[str, int]
    max_connection_creation_rate: int
    connections_max_idle_ms: int
    request_timeout_ms: int
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    connection_failed_authentication_delay_ms: int

    message_max_bytes: int
    max_decompressed_message_bytes: int
    compression_type: str
    min_insync_replicas: int
    unclean_leader_election_enable: bool
    leader_replication_throttled_rate: int
    follower_replication_throttled_rate: int
    #: In milliseconds whichever of the three settings was given; -1 is no limit.
    log_retention_ms: int
    log_retention_bytes: int
    log_retention_check_interval_ms: int
    log_roll_ms: int
    log_roll_jitter_ms: int
    log_segment_bytes: int
    log_segment_delete_delay_ms: int
    log_index_size_max_bytes: int
    log_index_interval_bytes: int
    log_flush_interval_messages: int
    log_flush_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_dir_failure_timeout_ms: int
    log_cleaner_enable: bool
    log_cleaner_threads: int
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_io_buffer_size: int
    log_cleaner_io_max_bytes_per_second: float
    num_recovery_threads_per_data_dir: int
    log_append_mode: str
    may_begin_empty: bool
    log_mapped_segments: int
    disk_floor_bytes: int
    disk_floor_replication_bytes: int
    #: Host and port, or None.
    metrics_listen: tuple[str, int] | None
    metrics_required: bool
    retention_scheduled: bool

    #: Empty: a cluster of one.
    zookeeper_connect: str
    zookeeper_session_timeout_ms: int
    zookeeper_connection_timeout_ms: int | None
    zookeeper_digest: str | None
    zookeeper_ssl_client_enable: bool
    zookeeper_ssl_truststore_location: str | None
    zookeeper_ssl_keystore_location: str | None
    zookeeper_ssl_keystore_password: str | None
    zookeeper_ssl_endpoint_identification_algorithm: str

    producer_id_expiration_ms: int
    producer_id_expiration_check_interval_ms: int
    transaction_max_timeout_ms: int
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_state_log_min_isr: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_segment_bytes: int
    transactional_id_expiration_ms: int

    group_consumer_assignment_interval_ms: int
    group_consumer_assignors: tuple[str, ...]
    group_consumer_heartbeat_interval_ms: int
    group_consumer_max_assignment_interval_ms: int
    group_consumer_max_heartbeat_interval_ms: int
    group_consumer_max_session_timeout_ms: int
    group_consumer_max_size: int
    #: In whatever case it was given.
    group_consumer_migration_policy: str
    group_consumer_min_assignment_interval_ms: int
    group_consumer_min_heartbeat_interval_ms: int
    group_consumer_min_session_timeout_ms: int
    group_consumer_regex_refresh_interval_ms: int
    group_consumer_session_timeout_ms: int
    group_coordinator_rebalance_protocols: tuple[str, ...]
    group_initial_rebalance_delay_ms: int
    group_max_size: int
    group_max_session_timeout_ms: int
    group_min_session_timeout_ms: int
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    offsets_retention_check_interval_ms: int
    offsets_retention_minutes: int
    offsets_topic_compression_codec: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int

    controlled_shutdown_enable: bool
    auto_leader_rebalance_enable: bool
    leader_imbalance_check_interval_seconds: int
    inter_broker_listener_name: str | None
    replica_lag_max_messages: int
    replica_lag_time_max_ms: int
    replica_selector_class: str | None
    replica_fetch_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_wait_max_ms: int
    replica_fetch_response_max_bytes: int
    replica_fetch_backoff_ms: int
    replica_socket_timeout_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    broker_heartbeat_interval_ms: int
    broker_session_timeout_ms: int

    @property
    def without_effect(self) -> tuple[str, ...]:
        """Settings that were given, differ from the default and do nothing: worth a warning."""
        return tuple(sorted(name for name, text in self.given.items() if _does_nothing(name, text)))


#: Fields whose name is not simply the setting's with underscores for dots.
_FIELD_SETTINGS = {
    "log_append_mode": "odradek.log.append",
    "may_begin_empty": "odradek.log.dirs.begin.empty",
    "log_mapped_segments": "odradek.log.mapped.segments",
    "disk_floor_bytes": "odradek.disk.floor.bytes",
    "disk_floor_replication_bytes": "odradek.disk.floor.replication.bytes",
    "metrics_listen": "odradek.metrics.listen",
    "metrics_required": "odradek.metrics.required",
    "retention_scheduled": "odradek.retention.scheduled",
    "zookeeper_digest": "odradek.zookeeper.digest",
}


def resolve_broker_config(
    static: Mapping[str, str],
    dynamic_default: Mapping[str, str] | None = None,
    dynamic_broker: Mapping[str, str] | None = None,
) -> BrokerConfig:
    """Raises ConfigError for an unknown or invalid static setting, or settings that contradict.

    A dynamic setting that cannot be used is left out and named in ``ignored``: a stored one must
    never keep a broker from starting.
    """
    static = _with_both_ids(static)
    _check_static(static)
    ignored: list[ConfigError] = []
    default = _usable(dynamic_default or {}, ignored)
    single = _usable(dynamic_broker or {}, ignored)
    while True:
        try:
            return _build(static, default, single, tuple(ignored))
        except ConfigError as error:
            if not default and not single:
                raise
            ignored.append(error)
            # What contradicts the rest cannot be told; the weaker layer gets a second chance.
            default, single = (default, {}) if single else ({}, {})


def validate_broker_dynamic(
    overrides: Mapping[str, str], per_broker: bool, broker: BrokerConfig | None = None
) -> None:
    """Raise ConfigError unless ``overrides`` may be all dynamic settings of this broker, or of the
    cluster. With ``broker``, contradictions with its other settings are found as well.
    """
    check_dynamic_names(overrides, per_broker)
    if broker is None:
        return
    default = broker.dynamic_default if per_broker else overrides
    single = overrides if per_broker else broker.dynamic_broker
    try:
        after = _build(broker.static, default, single, ())
        check_dynamic(after.values, overrides)
    except ConfigError as error:
        raise ConfigError(error.name, error.reason, ErrorCode.INVALID_REQUEST) from None


def _build(
    static: Mapping[str, str],
    default: Mapping[str, str],
    single: Mapping[str, str],
    ignored: tuple[ConfigError, ...],
) -> BrokerConfig:
    given = _merge(static, default, single)
    values = {
        name: key.check(given[name]) if name in given else key.parse(key.default)
        for name, key in BROKER_KEYS.items()
    }
    values |= _effective_times(values)
    listeners = _effective_listeners(values)
    check_together(values, listeners["listeners"])
    typed: dict[str, Any] = {}
    for field in fields(BrokerConfig):
        setting = _FIELD_SETTINGS.get(field.name, field.name.replace("_", "."))
        if setting in values:
            typed[field.name] = values[setting]
    typed |= listeners
    metrics = _FIELD_SETTINGS["metrics_listen"]
    typed["metrics_listen"] = parse_loopback(metrics, str(values[metrics]))
    typed["log_dirs"] = values["log.dirs"] or values["log.dir"]
    typed["max_connections_per_ip_overrides"] = parse_overrides(
        str(values["max.connections.per.ip.overrides"])
    )
    return BrokerConfig(
        static=static,
        dynamic_default=dict(default),
        dynamic_broker=dict(single),
        given=given,
        values=values,
        ignored=ignored,
        **typed,
    )


def _merge(*layers: Mapping[str, str]) -> dict[str, str]:
    """Later layers are stronger, and what they give silences its synonyms in weaker ones."""
    merged: dict[str, str] = {}
    for layer in layers:
        for name in layer:
            for synonym in synonyms_of(name) if name in BROKER_KEYS else ():
                if synonym not in layer:
                    merged.pop(synonym, None)
        merged.update(layer)
    return merged


def _with_both_ids(static: Mapping[str, str]) -> dict[str, str]:
    """``node.id`` and the older ``broker.id`` stand for each other; a lone node is number 1."""
    both = dict(static)
    given = both.get("node.id", both.get("broker.id", _DEFAULT_NODE_ID))
    both.setdefault("node.id", given)
    both.setdefault("broker.id", given)
    return both


def _check_static(static: Mapping[str, str]) -> None:
    for name, text in static.items():
        key = find_broker_key(name)
        if key is None:
            raise ConfigError(name, f"Unknown setting {name}{_suggestion(name)}")
        key.check(text)


def _suggestion(name: str) -> str:
    import difflib  # only for those who slipped

    close = difflib.get_close_matches(name, BROKER_KEYS, n=1, cutoff=0.8)
    return f": did you mean {close[0]}?" if close else ""


def _usable(stored: Mapping[str, str], ignored: list[ConfigError]) -> dict[str, str]:
    usable: dict[str, str] = {}
    for name, text in stored.items():
        key = find_broker_key(name)
        try:
            if key is not None:
                key.check(text)
                if key.scope is Scope.READ_ONLY and name in BROKER_KEYS:
                    raise ConfigError(name, f"Only the settings file can change {name}")
        except ConfigError as error:
            ignored.append(error)
        else:
            usable[name] = text
    return usable


def _does_nothing(name: str, text: str) -> bool:
    key = find_broker_key(name)
    if key is None:
        return True
    return not key.has_effect and key.parse(text) != key.parse(key.default)


def _effective_times(values: Mapping[str, ConfigValue]) -> dict[str, int]:
    """Times that may be given in several units: the finest unit that was given counts."""
    retention = _first_given(
        (values["log.retention.ms"], 1),
        (values["log.retention.minutes"], _MINUTE_MS),
        (values["log.retention.hours"], _HOUR_MS),
    )
    return {
        "log.retention.ms": max(retention, -1),
        "log.roll.ms": _first_given(
            (values["log.roll.ms"], 1), (values["log.roll.hours"], _HOUR_MS)
        ),
        "log.roll.jitter.ms": _first_given(
            (values["log.roll.jitter.ms"], 1), (values["log.roll.jitter.hours"], _HOUR_MS)
        ),
        "log.flush.interval.ms": _first_given(
            (values["log.flush.interval.ms"], 1), (values["log.flush.scheduler.interval.ms"], 1)
        ),
    }


def _first_given(*choices: tuple[ConfigValue, int]) -> int:
    for value, unit in choices:
        if isinstance(value, int):
            return value * unit
    raise AssertionError("the last choice has a default")


def _effective_listeners(
    values: Mapping[str, ConfigValue],
) -> dict[str, tuple[Listener, ...]]:
    """Without the listeners of a KRaft controller, which a settings file of Kafka's may name."""
    protocols = parse_protocol_map(str(values["listener.security.protocol.map"]))
    controllers = {name.upper() for name in _items(values["controller.listener.names"])}
    for name in controllers:
        protocols.setdefault(name, "PLAINTEXT")
    everything = parse_listeners("listeners", _items(values["listeners"]), protocols)
    check_distinct_ports("listeners", everything)
    listeners = tuple(item for item in everything if item.name not in controllers)
    if not listeners:
        raise ConfigError("listeners", "listeners: all of them are for controllers")
    texts = _items(values["advertised.listeners"])
    told = parse_listeners("advertised.listeners", texts, protocols)
    advertised = tuple(item for item in told if item.name not in controllers)
    _check_advertised(advertised, listeners)
    _check_inter_broker(values["inter.broker.listener.name"], advertised or listeners)
    return {"listeners": listeners, "advertised_listeners": advertised}


def _items(value: ConfigValue) -> tuple[str, ...]:
    assert value is None or isinstance(value, tuple), value
    return value or ()


def _check_inter_broker(name: ConfigValue, advertised: tuple[Listener, ...]) -> None:
    setting = "inter.broker.listener.name"
    names = [item.name for item in advertised]
    if name is not None and str(name).upper() not in names:
        raise ConfigError(
            setting, f"{setting}: {name} is not among those advertised: {', '.join(names)}"
        )


def _check_advertised(advertised: tuple[Listener, ...], listeners: tuple[Listener, ...]) -> None:
    setting = "advertised.listeners"
    unknown = {item.name for item in advertised} - {item.name for item in listeners}
    if unknown:
        raise ConfigError(
            setting, f"{setting}: {', '.join(sorted(unknown))} is not among the listeners"
        )
    for item in advertised:
        if item.host == "0.0.0.0":  # noqa: S104 - refused, not bound
            raise ConfigError(setting, f"{setting}: nobody can connect to 0.0.0.0")
