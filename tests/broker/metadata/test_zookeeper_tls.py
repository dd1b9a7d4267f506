"""The connection to ZooKeeper by TLS, each side with a certificate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.metadata.store import Create, Done
from broker.metadata.zookeeper_address import ZooKeeperAddress
from broker.metadata.zookeeper_session import SessionFile
from broker.metadata.zookeeper_store import CannotConnectError, ZooKeeperStore
from tests.support import judge
from tests.support.certificates import Certificates, make_certificates
from tests.support.thread_turns import ThreadTurns
from tests.support.zookeeper import ZooKeeper

pytestmark = pytest.mark.conformance


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def address(
    certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ZooKeeperAddress]:
    port = judge.free_port()
    settings = {
        "secureClientPort": str(port),
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(certificates.server),
        "ssl.trustStore.location": str(certificates.authority),
        "ssl.trustStore.type": "PEM",
    }
    authority = certificates.authority.with_suffix(".pem")
    authority.write_text(certificates.authority.read_text())
    settings["ssl.trustStore.location"] = str(authority)
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper"), settings):
        yield ZooKeeperAddress(
            f"127.0.0.1:{port}",
            is_tls=True,
            trust_file=str(certificates.authority),
            certificate_file=str(certificates.client),
        )


def test_both_sides_show_a_certificate(address: ZooKeeperAddress, tmp_path: Path) -> None:
    turns = ThreadTurns()
    store = ZooKeeperStore(address, SessionFile(tmp_path / "session"), turns.post)
    turns.is_idle = lambda: store.is_idle
    store.open()
    turns.wait(lambda: store.session_id != 0, "a session")
    outcomes: list[Any] = []
    # Several answers in one piece of what TLS sends: none may be left lying.
    for number in range(200):
        store.submit([Create(f"/{number}", bytes(500))], outcomes.append)
        store.get(f"/{number}", lambda node: None)
    turns.run()
    assert [type(outcome) for outcome in outcomes] == [Done] * 200
    store.close()


@pytest.mark.parametrize("who", ["no certificate", "a stranger's", "another authority"])
def test_who_cannot_prove_itself_is_not_connected(
    address: ZooKeeperAddress, certificates: Certificates, who: str, tmp_path: Path
) -> None:
    changed = {
        "no certificate": address._replace(certificate_file=None),
        "a stranger's": address._replace(certificate_file=str(certificates.stranger)),
        "another authority": address._replace(trust_file=str(certificates.stranger)),
    }[who]
    store = ZooKeeperStore(
        changed._replace(connection_timeout_ms=700),
        SessionFile(tmp_path / "session"),
        ThreadTurns().post,
    )
    with pytest.raises(CannotConnectError):
        store.open()
