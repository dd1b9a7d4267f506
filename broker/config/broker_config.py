"""What this broker was told: static settings under dynamic ones, resolved and typed.

Three maps of text give a ``BrokerConfig``: the static settings (file and command line), the
cluster-wide dynamic defaults and the dynamic settings of this broker, later ones being stronger.
The maps are kept, because DescribeConfigs shows where each value came from. A dynamic change makes
a new ``BrokerConfig``; nothing here is ever changed in place.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from broker.config.broker_keys import BROKER_KEYS, find_broker_key, is_dynamic
from broker.config.definition import ConfigError, ConfigValue
from broker.config.listeners import (
    Listener,
    check_distinct_ports,
    parse_listeners,
    parse_protocol_map,
)

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000

#: Kafka has no default for these and refuses to start; a single node of ours needs no such care.
_DEFAULT_NODE_ID = "1"


@dataclass(frozen=True, slots=True, eq=False)
class BrokerConfig:
    """Typed settings that the broker uses. Field names are Kafka's with underscores for dots.

    Compared by identity: a change always makes a new object.
    """

    static: Mapping[str, str]
    dynamic_default: Mapping[str, str]
    dynamic_broker: Mapping[str, str]
    #: Dynamic settings that were stored but cannot be used; the server logs them.
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
    log_cleaner_io_max_bytes_per_second: float
    num_recovery_threads_per_data_dir: int
    log_append_mode: str
    log_mapped_segments: int
    disk_floor_bytes: int
    disk_floor_replication_bytes: int

    producer_id_expiration_ms: int
    producer_id_expiration_check_interval_ms: int
    transaction_max_timeout_ms: int

    replica_lag_time_max_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_wait_max_ms: int
    replica_fetch_response_max_bytes: int
    replica_fetch_backoff_ms: int
    replica_socket_timeout_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    broker_heartbeat_interval_ms: int
    broker_session_timeout_ms: int

    def text(self, name: str) -> str | None:
        """The strongest text given for ``name``, or its default. Synonyms are not asked."""
        for given in (self.dynamic_broker, self.dynamic_default, self.static):
            if name in given:
                return given[name]
        key = find_broker_key(name)
        return None if key is None else key.default


#: Fields whose name is not simply the setting's with underscores for dots.
_FIELD_SETTINGS = {
    "log_append_mode": "odradek.log.append",
    "log_mapped_segments": "odradek.log.mapped.segments",
    "disk_floor_bytes": "odradek.disk.floor.bytes",
    "disk_floor_replication_bytes": "odradek.disk.floor.replication.bytes",
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
    default_map = _usable(dynamic_default or {}, ignored)
    broker_map = _usable(dynamic_broker or {}, ignored)
    merged = {**static, **default_map, **broker_map}
    values = {
        name: key.check(merged[name]) if name in merged else key.parse(key.default)
        for name, key in BROKER_KEYS.items()
    }
    typed: dict[str, Any] = {}
    for field in fields(BrokerConfig):
        setting = _FIELD_SETTINGS.get(field.name, field.name.replace("_", "."))
        if setting in values:
            typed[field.name] = values[setting]
    typed |= _effective_times(values)
    typed |= _effective_listeners(values)
    typed["log_dirs"] = values["log.dirs"] or values["log.dir"]
    typed["max_connections_per_ip_overrides"] = _parse_overrides(
        str(values["max.connections.per.ip.overrides"])
    )
    _check_together(values, typed)
    return BrokerConfig(
        static=static,
        dynamic_default=default_map,
        dynamic_broker=broker_map,
        ignored=tuple(ignored),
        **typed,
    )


def validate_broker_dynamic(
    overrides: Mapping[str, str | None], per_broker: bool, broker: BrokerConfig | None = None
) -> None:
    """Raise ConfigError unless ``overrides`` may be the dynamic settings of a broker or the cluster.

    With ``broker``, contradictions with its other settings are found as well.
    """
    raise NotImplementedError


def parse_properties(text: str) -> dict[str, str]:
    """The settings of a Java ``.properties`` text, its escapes and continued lines included."""
    settings: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _KEY_END.search(line)
        if match is None:
            settings[_unescape(line)] = ""
        else:
            key = line[: match.start()] + match.group(1)
            settings[_unescape(key)] = _unescape(line[match.end() :])
    return settings


#: The first blank, = or : that no backslash protects; blanks around one = or : belong to it.
_KEY_END = re.compile(r"(?<!\\)((?:\\\\)*)(?:[ \t\f]*[=:][ \t\f]*|[ \t\f]+)")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _logical_lines(text: str) -> list[str]:
    """Lines without comments and blanks in front; one that ends in a lone backslash goes on."""
    lines: list[str] = []
    pending: str | None = None
    for raw in re.split(r"\r\n|\n|\r", text):
        line = raw.lstrip(" \t\f")
        if pending is None and (not line or line[0] in "#!"):
            continue
        line = (pending or "") + line
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending = line[:-1]
        else:
            pending = None
            lines.append(line)
    if pending:
        lines.append(pending)
    return lines


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        code = match.group(1)
        if len(code) == 5:
            return chr(int(code[1:], 16))
        return _ESCAPED.get(code, code)

    return _ESCAPE.sub(replace, text)


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
    close = difflib.get_close_matches(name, BROKER_KEYS, n=1, cutoff=0.8)
    return f": did you mean {close[0]}?" if close else ""


def _usable(given: Mapping[str, str], ignored: list[ConfigError]) -> dict[str, str]:
    usable: dict[str, str] = {}
    for name, text in given.items():
        try:
            key = find_broker_key(name)
            if key is not None:
                key.check(text)
                if not is_dynamic(name):
                    raise ConfigError(name, f"{name} cannot be changed while the broker runs")
        except ConfigError as error:
            ignored.append(error)
        else:
            usable[name] = text
    return usable


def _effective_times(values: Mapping[str, ConfigValue]) -> dict[str, int]:
    """Times that may be given in several units: the finest unit that was given counts."""
    retention = _first_given(
        (values["log.retention.ms"], 1),
        (values["log.retention.minutes"], _MINUTE_MS),
        (values["log.retention.hours"], _HOUR_MS),
    )
    return {
        "log_retention_ms": max(retention, -1),
        "log_roll_ms": _first_given(
            (values["log.roll.ms"], 1), (values["log.roll.hours"], _HOUR_MS)
        ),
        "log_roll_jitter_ms": _first_given(
            (values["log.roll.jitter.ms"], 1), (values["log.roll.jitter.hours"], _HOUR_MS)
        ),
        "log_flush_interval_ms": _first_given(
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
    protocols = parse_protocol_map(str(values["listener.security.protocol.map"]))
    texts = values["listeners"]
    assert isinstance(texts, tuple)
    listeners = parse_listeners("listeners", texts, protocols)
    check_distinct_ports("listeners", listeners)
    advertised_texts = values["advertised.listeners"]
    advertised: tuple[Listener, ...] = ()
    if isinstance(advertised_texts, tuple):
        advertised = parse_listeners("advertised.listeners", advertised_texts, protocols)
        _check_advertised(advertised, listeners)
    return {"listeners": listeners, "advertised_listeners": advertised}


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


def _parse_overrides(text: str) -> dict[str, int]:
    """``max.connections.per.ip.overrides``: ``host:count,host:count``."""
    setting = "max.connections.per.ip.overrides"
    overrides: dict[str, int] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        host, colon, count = pair.rpartition(":")
        if not colon or not re.fullmatch(r"[0-9]{1,9}", count.strip()):
            raise ConfigError(setting, f"{setting}: '{pair}' is not of the form host:count")
        overrides[host.strip()] = int(count)
    return overrides


def _check_together(values: Mapping[str, ConfigValue], typed: Mapping[str, Any]) -> None:
    """What no single row can say. The same combinations stop Apache Kafka from starting."""
    for name, broken, problem in _contradictions(values, typed):
        if broken:
            raise ConfigError(name, f"{name}: {problem}")


def _contradictions(
    values: Mapping[str, Any], typed: Mapping[str, Any]
) -> list[tuple[str, bool, str]]:
    idle_ms = values["connections.max.idle.ms"]
    queued = values["queued.max.request.bytes"]
    wait_ms = values["replica.fetch.wait.max.ms"]
    threads = values["log.cleaner.threads"]
    return [
        ("broker.id", values["broker.id"] != values["node.id"], "must be equal to node.id"),
        ("log.roll.ms", typed["log_roll_ms"] < 1, "must be at least 1"),
        ("log.roll.jitter.ms", typed["log_roll_jitter_ms"] < 0, "must be at least 0"),
        (
            "log.retention.ms",
            typed["log_retention_ms"] == 0,
            "must be at least 1, or -1 for no limit",
        ),
        (
            "log.cleaner.min.compaction.lag.ms",
            values["log.cleaner.min.compaction.lag.ms"]
            > values["log.cleaner.max.compaction.lag.ms"],
            "must not exceed log.cleaner.max.compaction.lag.ms",
        ),
        (
            "log.cleaner.dedupe.buffer.size",
            threads > 0 and values["log.cleaner.dedupe.buffer.size"] // threads <= 1 << 20,
            "must be more than 1 MiB for each of log.cleaner.threads",
        ),
        (
            "replica.fetch.wait.max.ms",
            wait_ms > values["replica.socket.timeout.ms"]
            or wait_ms > values["replica.lag.time.max.ms"],
            "must not exceed replica.socket.timeout.ms and replica.lag.time.max.ms",
        ),
        (
            "queued.max.request.bytes",
            0 < queued < values["socket.request.max.bytes"],
            "must be at least socket.request.max.bytes, or -1 for no limit",
        ),
        (
            "max.connections.per.ip",
            values["max.connections.per.ip"] == 0 and not typed["max_connections_per_ip_overrides"],
            "can be 0 only together with max.connections.per.ip.overrides",
        ),
        (
            "connection.failed.authentication.delay.ms",
            0 <= idle_ms <= values["connection.failed.authentication.delay.ms"],
            "must be less than connections.max.idle.ms",
        ),
    ]
