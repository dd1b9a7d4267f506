"""What no single row of the broker table can say: settings that contradict each other.

``check_together`` holds at any time, ``check_dynamic`` for what may be changed while the broker
runs. Both refuse what Apache Kafka refuses, and besides what this broker cannot honour and what
would be dangerous to pass over in silence (encryption, authentication, authorisation).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from broker.config.broker_keys import (
    BROKER_KEYS,
    ONLY_AT_START,
    ONLY_PER_LISTENER,
    find_broker_key,
    is_per_broker,
)
from broker.config.definition import (
    ConfigError,
    ConfigType,
    DistinctItems,
    Scope,
    split_items,
)
from broker.config.listeners import Listener
from broker.model.error_code import ErrorCode


def check_together(values: Mapping[str, Any], listeners: tuple[Listener, ...]) -> None:
    """``values`` are the effective ones: times in milliseconds whatever they were given in."""
    for name, is_wrong, problem in (
        *_log_rules(values),
        *_replication_rules(values),
        *_connection_rules(values),
        *_unsupported(values, listeners),
    ):
        if is_wrong:
            raise ConfigError(name, f"{name}: {problem}")


_Rule = tuple[str, bool, str]


def _log_rules(values: Mapping[str, Any]) -> Iterator[_Rule]:
    retention = values["log.retention.ms"]
    threads = values["log.cleaner.threads"]
    minimum_lag = values["log.cleaner.min.compaction.lag.ms"]
    yield "log.roll.ms", values["log.roll.ms"] < 1, "must be at least 1"
    yield "log.roll.jitter.ms", values["log.roll.jitter.ms"] < 0, "must be at least 0"
    yield "log.retention.ms", retention == 0, "must be at least 1, or -1 for no limit"
    yield (
        "log.cleaner.min.compaction.lag.ms",
        minimum_lag > values["log.cleaner.max.compaction.lag.ms"],
        "must not exceed log.cleaner.max.compaction.lag.ms",
    )
    yield (
        "log.cleaner.dedupe.buffer.size",
        threads == 0 or values["log.cleaner.dedupe.buffer.size"] // threads <= 1 << 20,
        "must be more than 1 MiB for each of log.cleaner.threads, of which there must be one",
    )


def _replication_rules(values: Mapping[str, Any]) -> Iterator[_Rule]:
    wait_ms = values["replica.fetch.wait.max.ms"]
    yield "broker.id", values["broker.id"] != values["node.id"], "must be equal to node.id"
    yield (
        "replica.fetch.wait.max.ms",
        wait_ms > min(values["replica.socket.timeout.ms"], values["replica.lag.time.max.ms"]),
        "must not exceed replica.socket.timeout.ms and replica.lag.time.max.ms",
    )


def _connection_rules(values: Mapping[str, Any]) -> Iterator[_Rule]:
    idle_ms = values["connections.max.idle.ms"]
    yield (
        "queued.max.request.bytes",
        0 < values["queued.max.request.bytes"] < values["socket.request.max.bytes"],
        "must be at least socket.request.max.bytes, or -1 for no limit",
    )
    yield (
        "max.connections.per.ip",
        values["max.connections.per.ip"] == 0
        and not parse_overrides(values["max.connections.per.ip.overrides"]),
        "can be 0 only together with max.connections.per.ip.overrides",
    )
    yield (
        "connection.failed.authentication.delay.ms",
        0 <= idle_ms <= values["connection.failed.authentication.delay.ms"],
        "must be less than connections.max.idle.ms",
    )


def _unsupported(values: Mapping[str, Any], listeners: tuple[Listener, ...]) -> Iterator[_Rule]:
    """A broker that looked protected but is not would be worse than one that does not start."""
    protected = [item.name for item in listeners if item.security_protocol != "PLAINTEXT"]
    yield (
        "listeners",
        bool(protected),
        f"{', '.join(protected)} asks for TLS or SASL, which this broker does not have",
    )
    yield (
        "authorizer.class.name",
        values["authorizer.class.name"] != "",
        "there is no authorizer in this broker",
    )
    yield (
        "remote.log.storage.system.enable",
        values["remote.log.storage.system.enable"],
        "there is no tiered storage in this broker",
    )


def parse_overrides(text: str) -> dict[str, int]:
    """``max.connections.per.ip.overrides``: ``host:count,host:count``."""
    setting = "max.connections.per.ip.overrides"
    overrides: dict[str, int] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        host, colon, count = pair.rpartition(":")
        if not colon or not host or not (count.isascii() and count.isdigit() and len(count) < 10):
            raise ConfigError(setting, f"{setting}: '{pair}' is not of the form host:count")
        overrides[host.strip()] = int(count)
    return overrides


def check_dynamic_names(overrides: Mapping[str, str], per_broker: bool) -> None:
    """May these be dynamic settings at all, of one broker (``per_broker``) or of all of them?

    Unknown names pass, as in Kafka, where plugins bring their own.
    """
    fixed = sorted(
        name
        for name in overrides
        if name in BROKER_KEYS and BROKER_KEYS[name].scope is Scope.READ_ONLY
    )
    if fixed:
        raise _refused(fixed[0], f"Only the settings file can change {', '.join(fixed)}")
    bare = sorted(ONLY_PER_LISTENER & overrides.keys())
    if bare:
        raise _refused(
            bare[0], f"Needs a prefix listener.name.<name>. when changed: {', '.join(bare)}"
        )
    for name, text in overrides.items():
        _check_dynamic_value(name, text)
    single = [] if per_broker else sorted(filter(is_per_broker, overrides))
    if single:
        raise _refused(single[0], f"Can be set for one broker only: {', '.join(single)}")
    late = sorted(ONLY_AT_START & overrides.keys())
    if late:
        raise _refused(late[0], f"Needs a restart: change it in the settings file: {late[0]}")


def _check_dynamic_value(name: str, text: str) -> None:
    key = find_broker_key(name)
    if key is None or key.scope is Scope.READ_ONLY:
        return
    try:
        key.check(text)
    except ConfigError as error:
        raise _refused(name, error.reason) from None
    if isinstance(key.validator, DistinctItems):
        items = split_items(text)
        if len(set(items)) != len(items):
            raise _refused(name, f"{name} must not name an item twice")
    elif key.type is ConfigType.CLASS and text != key.default:
        raise _refused(name, f"{name}: this broker loads no classes")


def check_dynamic(values: Mapping[str, Any], overrides: Mapping[str, str]) -> None:
    """``values`` are the effective ones after a dynamic change of ``overrides``."""
    for name, is_wrong, problem in (
        *_at_least_one(values, overrides),
        *_assignment_rules(values),
        *_local_retention_rules(values, "ms"),
        *_local_retention_rules(values, "bytes"),
        *_list_rules(values),
    ):
        if is_wrong:
            raise _refused(name, f"{name}: {problem}")


def _at_least_one(values: Mapping[str, Any], overrides: Mapping[str, str]) -> Iterator[_Rule]:
    """Zero would lock out the client that could take it back."""
    for name, text in overrides.items():
        if name.endswith(("max.connections", "max.connection.creation.rate")):
            key = find_broker_key(name)
            yield name, key is not None and key.parse(text) == 0, "must be at least 1"
    yield (
        "max.connections.per.ip",
        values["max.connections.per.ip"] == 0
        and not parse_overrides(values["max.connections.per.ip.overrides"]),
        "must be at least 1",
    )


def _assignment_rules(values: Mapping[str, Any]) -> Iterator[_Rule]:
    for kind in ("consumer", "share", "streams"):
        interval = values[f"group.{kind}.assignment.interval.ms"]
        least = values[f"group.{kind}.min.assignment.interval.ms"]
        most = values[f"group.{kind}.max.assignment.interval.ms"]
        yield (
            f"group.{kind}.assignment.interval.ms",
            not least <= interval <= most,
            f"must lie between {least} and {most}",
        )


def _local_retention_rules(values: Mapping[str, Any], unit: str) -> Iterator[_Rule]:
    """Tiered storage keeps no more on the local disk than in all."""
    retention = values[f"log.retention.{unit}"]
    local = values[f"log.local.retention.{unit}"]
    lag = values[f"log.remote.copy.lag.{unit}"]
    yield (
        f"log.local.retention.{unit}",
        retention > -1 and local != -2 and not 0 <= local <= retention,
        f"must not exceed log.retention.{unit} ({retention})",
    )
    kept = retention if local == -2 else local
    yield (
        f"log.remote.copy.lag.{unit}",
        kept >= 0 and lag > kept,
        f"must not exceed log.local.retention.{unit} (in effect {kept})",
    )


def _list_rules(values: Mapping[str, Any]) -> Iterator[_Rule]:
    directories = set(values["log.dirs"] or values["log.dir"])
    cordoned = values["cordoned.log.dirs"]
    yield (
        "cordoned.log.dirs",
        cordoned is not None and cordoned != ("*",) and not set(cordoned) <= directories,
        "must be among log.dirs",
    )
    reporters = values["metric.reporters"]
    yield (
        "metric.reporters",
        not set(reporters) <= {BROKER_KEYS["metric.reporters"].default},
        "this broker loads no classes",
    )


def _refused(name: str, reason: str) -> ConfigError:
    """Kafka answers every refusal of a dynamic broker setting with INVALID_REQUEST."""
    return ConfigError(name, reason, ErrorCode.INVALID_REQUEST)
