"""``odradek import`` from an Apache Kafka whose listeners want TLS, passwords or certificates."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.test_import import run
from tests.support import judge, record_batches, requests
from tests.support.apache import ApacheKafka
from tests.support.certificates import Certificates, make_certificates
from tests.support.odradek import REPOSITORY, OdradekBroker
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
        (error,) = failed["errors"]
        assert error["message"].startswith(
            f"the source: {secured.with_password} does not let this client in: "
        )
        assert "Authentication failed" in error["message"]
        # The same for every other command.
        done = subprocess.run(
            [sys.executable, "-m", "appliance", "-b", secured.with_password, "--command-config", path,
             "topic", "list"],
            cwd=REPOSITORY, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 3
        assert "does not let this client in" in done.stderr
        assert "User, password and mechanism" in done.stderr
        assert "--source-config FILE" in error["hint"]
        # TLS where there is none, and none where there is.
        plain = "{}:{}".format(*secured.kafka.address)
        for source, options in ((plain, more), (secured.with_certificate, ())):
            (error,) = run(broker, source, *options, status=3)["errors"]
            assert "--source-config FILE" in error["hint"]
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


def test_the_commands_of_the_page_work_as_they_stand_there(
    secured: Secured, tmp_path: Path
) -> None:
    page = (REPOSITORY / "docs" / "import.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("odradek import ")]
    assert len(lines) == 4
    plain = "{}:{}".format(*secured.kafka.address)
    places = {
        "kafka.example:9092": plain,
        "kafka-1.example:9092,kafka-2.example:9092": f"127.0.0.1:1,{plain}",
    }
    (tmp_path / "client.properties").write_text(with_password(secured, "let me in"))
    with Wire(secured.kafka.address) as wire:
        requests.create_topic(wire, "audit-1")
    for number, line in enumerate(lines):
        words = [places.get(word, word) for word in shlex.split(line, comments=True)[1:]]
        if "--source-config" in words:
            words = [secured.with_password if word == plain else word for word in words]
        with OdradekBroker(tmp_path / f"broker-{number}") as broker:
            done = subprocess.run(
                [sys.executable, "-m", "appliance", "-b", broker.bootstrap, *words, "--data", broker.data],
                cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True,
            )  # fmt: skip
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
            assert "audit-1" in done.stdout
            assert imported(broker) == VALUES
