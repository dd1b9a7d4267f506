"""Where ZooKeeper is, from the broker's settings; without kazoo, as every broker asks."""

from __future__ import annotations

from broker.config.broker_config import BrokerConfig
from broker.config.definition import ConfigError
from broker.metadata.zookeeper_address import ZooKeeperAddress, parse_connect

CONNECT = "zookeeper.connect"


def zookeeper_address(config: BrokerConfig) -> ZooKeeperAddress | None:
    """None: this broker is a cluster of its own. Raises ConfigError."""
    connect = config.zookeeper_connect
    if not connect:
        return None
    try:
        hosts, chroot = parse_connect(connect)
    except ValueError as error:
        raise ConfigError(CONNECT, f"{CONNECT}={connect}: {error}") from error
    session_ms = config.zookeeper_session_timeout_ms
    connection_ms = config.zookeeper_connection_timeout_ms
    return ZooKeeperAddress(
        hosts,
        chroot,
        session_timeout_ms=session_ms,
        connection_timeout_ms=session_ms if connection_ms is None else connection_ms,
        digest=config.zookeeper_digest or "",
        is_tls=config.zookeeper_ssl_client_enable,
        trust_file=config.zookeeper_ssl_truststore_location or None,
        certificate_file=config.zookeeper_ssl_keystore_location or None,
        key_password=config.zookeeper_ssl_keystore_password or None,
        is_host_name_checked=bool(config.zookeeper_ssl_endpoint_identification_algorithm),
    )
