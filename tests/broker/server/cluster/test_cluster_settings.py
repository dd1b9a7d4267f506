"""From settings to where ZooKeeper is."""

from __future__ import annotations

import pytest

from broker.config.broker_config import resolve_broker_config
from broker.config.definition import ConfigError
from broker.metadata.zookeeper_address import ZooKeeperAddress
from broker.server.cluster.settings import zookeeper_address


def address(**settings: str) -> ZooKeeperAddress | None:
    dotted = {name.replace("_", "."): value for name, value in settings.items()}
    return zookeeper_address(resolve_broker_config(dotted))


def test_without_zookeeper_a_broker_is_alone() -> None:
    assert address() is None
    assert address(zookeeper_connect=" ") is None


def test_kafkas_names_and_our_digest() -> None:
    assert address(zookeeper_connect="zk1:2181,zk2/odradek") == ZooKeeperAddress(
        "zk1:2181,zk2", "/odradek"
    )
    assert address(
        zookeeper_connect="zk",
        zookeeper_session_timeout_ms="6000",
        odradek_zookeeper_digest="user:password",
        zookeeper_ssl_client_enable="true",
        zookeeper_ssl_truststore_location="/ca.pem",
        zookeeper_ssl_keystore_location="/own.pem",
        zookeeper_ssl_keystore_password="secret",
        zookeeper_ssl_endpoint_identification_algorithm="",
    ) == ZooKeeperAddress(
        "zk",
        "",
        session_timeout_ms=6000,
        connection_timeout_ms=6000,
        digest="user:password",
        is_tls=True,
        trust_file="/ca.pem",
        certificate_file="/own.pem",
        key_password="secret",
        is_host_name_checked=False,
    )


def test_what_is_no_address_stops_the_start() -> None:
    with pytest.raises(
        ConfigError, match=r"zookeeper\.connect=zk:port: 'zk:port' is not HOST:PORT"
    ):
        address(zookeeper_connect="zk:port")
