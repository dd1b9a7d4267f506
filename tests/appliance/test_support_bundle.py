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
    "ODRADEK_SMTP_PASSWORD": "mail-goes-out",
    "ODRADEK_DATABASE_URL": "postgres://me:tables-of-mine@127.0.0.1/db",
    "ODRADEK_CELERY_URL": "redis://:bells-of-mine@127.0.0.1/0",
    "ODRADEK_CLIENT_PROPERTIES": "sasl.username=me\nsasl.password=client-of-mine",
    "ODRADEK_BROKER": "num.partitions=3\nlistener.name.x.sasl.jaas.config=jaas-of-mine",
}
TOLD = (
    "signs-all", "first-of", "bearer-of", "mail-goes", "tables-of", "bells-of", "client-of",
    "jaas-of", "kept-on-disk", "never-signed-in",
)  # fmt: skip


def test_a_bundle_tells_what_helps_and_no_secret(
    odradek: Odradek, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    with OdradekBroker(tmp_path / "node") as node:
        (node.data / "secret_key").write_text("kept-on-disk\n")
        (node.data / "initial-admin-password").write_text("never-signed-in\n")
        (node.data / "run-logs").mkdir()
        (node.data / "run-logs" / "1.log").write_text("connected by client-of-mine, 3 records\n")
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
    assert parts["run-logs/1.log"] == "connected by ***, 3 records\n"
    settings = json.loads(parts["config.json"])
    assert settings["broker"]["value"]["num.partitions"] == "3"
    assert settings["smtp_password"] == {"value": "***", "source": "environment"}
    assert json.loads(parts["broker/node.json"])["is_ready"] is True
    assert "file descriptors" in {row["check"] for row in json.loads(parts["doctor.json"])["data"]}
    assert json.loads(parts["versions.json"])["packages"]["Django"]


def test_a_bundle_is_made_of_a_node_that_does_not_run_too(odradek: Odradek, tmp_path: Path) -> None:
    done = odradek("support-bundle", tmp_path / "b.tar.gz", "--data", tmp_path, "--format", "json")
    assert "broker/node.json" in done.ok().data[0]["parts"]
