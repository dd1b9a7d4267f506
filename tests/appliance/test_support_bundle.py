import json
import tarfile
from pathlib import Path

import pytest

from tests.appliance.conftest import Odradek
from tests.support.odradek import OdradekBroker

SECRETS = {
    "ODRADEK_SECRET_KEY": "signs-all-sessions",
    "ODRADEK_ADMIN_PASSWORD": "first-of-admins",
    "ODRADEK_METRICS_TOKEN": "bearer-of-metrics",
    "ODRADEK_SMTP_PASSWORD": "e",
    "PGPASSWORD": "of-another-program",
    "ODRADEK_DATABASE_URL": "postgres://me:tables-of-mine@127.0.0.1/db",
    "ODRADEK_CELERY_URL": "redis://:bells-of-mine@127.0.0.1/0",
    "ODRADEK_CLIENT_PROPERTIES": "sasl.username=me\nsasl.password=client-of-mine\n"
    'sasl.jaas.config=PlainLoginModule required username="me" password="jaas-in-quotes";',
    "ODRADEK_BROKER": "num.partitions=3\nlistener.name.x.sasl.jaas.config=jaas-of-mine\n"
    "ssl.keystore.key=-----BEGIN PRIVATE KEY----- MIIkey-of-mine\nzookeeper.connect=zk://u:zk-of-mine@h:1",
}
TOLD = (
    "signs-all", "first-of", "bearer-of", "tables-of", "bells-of", "client-of",
    "jaas-of", "jaas-in", "kept-on-disk", "never-signed-in", "of-another", "key-of-mine", "zk-of-mine",
    "in-a-file", "of-nobody", "MIIother", "abc.def",
)  # fmt: skip
#: Secrets as programs write them, and what is none.
LOG = """\
connected by client-of-mine, 3 records
to postgres://me:tables-of-mine@127.0.0.1/db with tables-of-mine, jaas-in-quotes, of-another-program, in-a-file
hook https://u:of-nobody-1@example.com/x and http://h:80/x, Authorization: Bearer abc.def
-----BEGIN RSA PRIVATE KEY-----
MIIother
-----END RSA PRIVATE KEY-----
sasl.password=of-nobody-2, {"token": "of-nobody-3"}; e
the end
"""
LOG_AS_TOLD = """\
connected by ***, 3 records
to *** with ***, ***, ***, ***
hook https://u:***@example.com/x and http://h:80/x, Authorization: Bearer ***
-----BEGIN RSA PRIVATE KEY-----***-----END RSA PRIVATE KEY-----
sasl.password=***, {"token": ***}; ***
the end
"""


def test_a_bundle_tells_what_helps_and_no_secret(
    odradek: Odradek, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    with OdradekBroker(tmp_path / "node") as node:
        (node.data / "secret_key").write_text("kept-on-disk\n")
        (node.data / "initial-admin-password").write_text("never-signed-in\n")
        (node.data / "run-logs").mkdir()
        (node.data / "run-logs" / "1.log").write_text(LOG)
        (tmp_path / "server.properties").write_text("ssl.key.password=in-a-file\n")
        monkeypatch.setenv("ODRADEK_BROKER_CONFIG", str(tmp_path / "server.properties"))
        bundle = tmp_path / "bundle.tar.gz"
        done = odradek("support-bundle", bundle, "--data", node.data).ok()
    assert str(bundle) in done.out
    with tarfile.open(bundle) as archive:
        names = archive.getnames()
        parts = {
            name.removeprefix("odradek-support/"): file.read().decode()
            for name in names
            if (file := archive.extractfile(name)) is not None
        }
    assert names[0] == "odradek-support/listing.txt"
    for name in parts:
        assert name == "listing.txt" or name in parts["listing.txt"]
    whole = "\n".join(parts.values())
    assert not [secret for secret in TOLD if secret in whole]
    assert parts["run-logs/1.log"] == LOG_AS_TOLD
    assert bundle.stat().st_mode & 0o777 == 0o600
    settings = json.loads(parts["config.json"])
    assert settings["broker"]["value"]["num.partitions"] == "3"
    assert settings["smtp_password"] == {"value": "***", "source": "environment"}
    assert json.loads(parts["broker/node.json"])["is_ready"] is True
    assert "file descriptors" in {row["check"] for row in json.loads(parts["doctor.json"])["data"]}
    assert json.loads(parts["versions.json"])["packages"]["Django"]


def test_a_bundle_is_made_of_a_node_that_does_not_run_too(odradek: Odradek, tmp_path: Path) -> None:
    done = odradek("support-bundle", tmp_path / "b.tar.gz", "--data", tmp_path, "--format", "json")
    assert "broker/node.json" in done.ok().data[0]["parts"]
