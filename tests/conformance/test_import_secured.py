"""``odradek import`` from an Apache Kafka whose listeners want TLS, passwords or certificates."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.test_import import run
from tests.support import judge, record_batches, requests
from tests.support.apache import ApacheKafka
from tests.support.certificates import Certificates, make_certificates
from tests.support.odradek import OdradekBroker
from tests.support.requests import now_ms
from tests.support.wire import Wire

pytestmark = [pytest.mark.conformance, pytest.mark.slow]
VALUES = [b"one", b"two", b"three"]
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class Secured:
    """Tests write by the plain listener, the import comes by one of the others."""

    def __init__(self, directory: Path) -> None:
        self.certificates: Certificates = make_certificates(directory)
        plain, passwords, certificates, controller = (judge.free_port() for _ in range(4))
        self.with_password = f"127.0.0.1:{passwords}"
        self.with_certificate = f"127.0.0.1:{certificates}"
        listeners = (
            f"PLAINTEXT://127.0.0.1:{plain},PASSWORDS://{self.with_password},"
            f"CERTIFICATES://{self.with_certificate}"
        )
        settings = {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": listeners,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
            "PASSWORDS:SASL_SSL,CERTIFICATES:SSL",
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificates.server),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.authority),
            "listener.name.certificates.ssl.client.auth": "required",
            "listener.name.passwords.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.passwords.plain.sasl.jaas.config": f'{PLAIN} user_importer="let me in";',
        }
        self.kafka = ApacheKafka(directory / "kafka", settings)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    with made.kafka:
        with Wire(made.kafka.address) as wire:
            requests.create_topic(wire, "orders")
            requests.produce(wire, "orders", record_batches.batch(VALUES, timestamp=now_ms()))
        yield made


def trust(secured: Secured) -> str:
    return f"ssl.truststore.type=PEM\nssl.truststore.location={secured.certificates.authority}\n"


def imported(broker: OdradekBroker) -> list[bytes]:
    with Wire(broker.address) as wire:
        return [record.value for record in requests.read_all(wire, "orders")]


def with_password(secured: Secured, password: str) -> str:
    return (
        "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={PLAIN} username="importer" password="{password}";\n{trust(secured)}'
    )


def test_by_a_password_over_tls(secured: Secured, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    with OdradekBroker(tmp_path / "broker") as broker:
        path.write_text(with_password(secured, "wrong"))
        more = ("--source-config", str(path))
        failed = run(broker, secured.with_password, *more, status=3)
        assert failed["errors"]
        path.write_text(with_password(secured, "let me in"))
        found = run(broker, secured.with_password, *more)
        assert [row["outcome"] for row in found["data"]] == ["imported"]
        assert imported(broker) == VALUES


@pytest.mark.parametrize("form", ["file", "text"])
def test_by_a_certificate(form: str, secured: Secured, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    client = secured.certificates.client
    if form == "file":
        own = f"ssl.keystore.type=PEM\nssl.keystore.location={client}\n"
    else:
        key, _, chain = client.read_text().partition("-----BEGIN CERTIFICATE-----")
        key, chain = (
            text.replace("\n", "\\n\\\n    ")
            for text in (key.strip(), f"-----BEGIN CERTIFICATE-----{chain}".strip())
        )
        own = f"ssl.keystore.type=PEM\nssl.keystore.key={key}\nssl.keystore.certificate.chain={chain}\n"
    with OdradekBroker(tmp_path / "broker") as broker:
        path.write_text(f"security.protocol=SSL\n{trust(secured)}")
        run(broker, secured.with_certificate, "--source-config", str(path), status=3)
        path.write_text(f"security.protocol=SSL\n{trust(secured)}{own}")
        found = run(broker, secured.with_certificate, "--source-config", str(path))
        assert [row["outcome"] for row in found["data"]] == ["imported"]
        assert imported(broker) == VALUES
