from pathlib import Path

import pytest

from appliance import client_config
from appliance.failure import CommandError
from appliance.session import Session


def test_java_properties_are_translated(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "# a comment\n"
        "bootstrap.servers=a:1,b:2\n"
        "security.protocol = SASL_SSL\n"
        "ssl.truststore.location=/ca.pem\n"
        "sasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.X required \\\n"
        '    username="u" password="p=1";\n'
        "request.timeout.ms=5\n"
    )
    assert client_config.read_command_config(path) == {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "/ca.pem",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "p=1",
    }


def test_a_key_and_its_certificates_in_one_pem_file_are_both() -> None:
    assert client_config.translate(
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": "/client.pem",
            "ssl.endpoint.identification.algorithm": "",
        }
    ) == {
        "ssl.certificate.location": "/client.pem",
        "ssl.key.location": "/client.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }


@pytest.mark.parametrize(
    "properties",
    [
        {"ssl.truststore.location": "/trust.jks"},
        {"ssl.keystore.type": "pkcs12", "ssl.keystore.location": "/key"},
    ],
)
def test_stores_that_only_java_reads_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(CommandError, match="only Java reads"):
        client_config.translate(properties)


def test_a_missing_file_is_wrong_usage() -> None:
    with pytest.raises(CommandError) as error:
        client_config.read_command_config(Path("/nonexistent"))
    assert error.value.exit_code == 2


def test_the_nearest_setting_wins(tmp_path: Path) -> None:
    path = client_config.profiles_path()
    path.parent.mkdir(parents=True)
    path.write_text(
        '[profile.staging]\nbootstrap = "staging:9092"\nproperties = { "security.protocol" = "SSL" }\n'
    )
    session = Session(profile="staging", properties={"client.id": "x"})
    assert session.resolve_cluster() == (
        "staging:9092",
        {"security.protocol": "SSL", "client.id": "x"},
    )
    session.remember("bootstrap", "other:1")
    session.remember("properties", [("security.protocol", "PLAINTEXT")])
    bootstrap, properties = session.resolve_cluster()
    assert bootstrap == "other:1"
    assert properties["security.protocol"] == "PLAINTEXT"


def test_an_unknown_profile_names_those_that_exist() -> None:
    with pytest.raises(CommandError, match=r"there: none") as error:
        client_config.read_profile("nope")
    assert error.value.exit_code == 2


def test_without_anything_the_broker_is_local() -> None:
    assert Session().resolve_cluster() == ("127.0.0.1:9092", {})
