"""The one configuration: later sources win, unknown keys are refused, secrets come from files and stay hidden."""

from pathlib import Path

import pytest

from appliance.commands.config_show import HIDDEN
from appliance.config import ApplianceConfig, ConfigError, is_toml, load, load_for_serve
from appliance.config_documentation import appliance_section
from tests.appliance.conftest import Odradek


def test_later_sources_win_and_each_value_knows_its_own(tmp_path: Path) -> None:
    file = tmp_path / "odradek.toml"
    file.write_text('web = "0.0.0.0:1"\nlisten = ":2"\nroot_path = "tools/"\nlog_level = "ERROR"\n')
    environment = {"ODRADEK_WEB": "127.0.0.1:3", "ODRADEK_LISTEN": "127.0.0.1:4"}
    found = load({"listen": "127.0.0.1:5", "advertised": None}, environment, file)
    values = found.values
    assert (values.web, values.listen, values.root_path) == ("127.0.0.1:3", "127.0.0.1:5", "/tools")
    names = ("data", "log_level", "web", "listen", "advertised")
    assert [found.sources[name] for name in names] == [
        "default", "file", "environment", "flag", "default",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("environment", "text", "words"),
    [
        ({"ODRADEK_WEBB": "x"}, "", r"unknown setting 'webb' .*ODRADEK_WEBB.*did you mean web\?"),
        ({}, "listn = 1\n", "unknown setting 'listn' in .*did you mean listen"),
        ({"ODRADEK_SMTP_PORT": "x"}, "", r"smtp_port \(from environment\)"),
        ({}, "smtp_port = 70000\n", r"smtp_port \(from file\)"),
        ({"ODRADEK_METRICS_TOKEN_FILE": "/nowhere"}, "", "ODRADEK_METRICS_TOKEN_FILE: cannot read"),
        ({}, "web = [", "is not TOML"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(
    environment: dict[str, str], text: str, words: str, tmp_path: Path
) -> None:
    file = tmp_path / "odradek.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=words):
        load({}, environment, file)


def test_what_the_single_executable_is_told_is_no_setting() -> None:
    load({}, {"ODRADEK_CACHE": "/var/cache/odradek"})


def test_secrets_may_lie_in_files(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("figures\n")
    found = load({}, {"ODRADEK_METRICS_TOKEN_FILE": str(tmp_path / "token")})
    assert found.values.metrics_token.get_secret_value() == "figures"
    assert found.sources["metrics_token"] == "secret file"
    assert "figures" not in repr(found)


def test_tables_and_lists_have_a_form_for_each_source(tmp_path: Path) -> None:
    file = tmp_path / "odradek.toml"
    file.write_text("[broker]\nnum.partitions = 3\n'auto.create.topics.enable' = false\n")
    expected = {"num.partitions": "3", "auto.create.topics.enable": "false"}
    assert load({}, {}, file).values.broker == expected
    lines = "num.partitions=3\nauto.create.topics.enable=false"
    environment = {"ODRADEK_BROKER": lines, "ODRADEK_ALLOWED_HOSTS": "a.example, b.example"}
    values = load({}, environment).values
    assert values.broker == expected
    assert values.allowed_hosts == ("a.example", "b.example")


def test_children_load_what_serve_has_loaded(tmp_path: Path) -> None:
    file = tmp_path / "odradek.toml"
    file.write_text("[broker]\n'num.partitions' = '3'\n")
    flags = {"web": "127.0.0.1:7", "broker": {"log.dirs": "/a,/b"}}
    loaded = load_for_serve(flags, file)
    assert loaded.values.broker == {"num.partitions": "3", "log.dirs": "/a,/b"}
    again = load({}, loaded.as_environment())
    assert again.values == loaded.values


def test_a_file_of_java_properties_is_the_brokers(tmp_path: Path) -> None:
    properties = tmp_path / "server.conf"
    properties.write_text("num.partitions=4\n")
    assert not is_toml(properties)
    assert load_for_serve({}, properties).values.broker_config == properties
    toml = tmp_path / "odradek.conf"
    toml.write_text('web = "127.0.0.1:1"\n')
    assert is_toml(toml)


def test_config_show_tells_every_key_and_hides_secrets(
    odradek: Odradek, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODRADEK_METRICS_TOKEN", "figures")
    monkeypatch.setenv("ODRADEK_CLIENT_PROPERTIES", "sasl.password=hush\nclient.id=me")
    done = odradek("config", "show", "--format", "json").ok()
    rows = {row["key"]: row for row in done.data}
    assert rows.keys() == ApplianceConfig.model_fields.keys()
    assert all(row["description"] for row in rows.values())
    assert (rows["metrics_token"]["value"], rows["metrics_token"]["source"]) == (
        HIDDEN,
        "environment",
    )
    assert rows["client_properties"]["value"] == f"sasl.password={HIDDEN}, client.id=me"
    assert "figures" not in done.out
    assert "hush" not in done.out
    assert odradek("config", "show", "nothing").code == 2


def test_the_page_has_a_row_for_every_key() -> None:
    page = appliance_section()
    for name in ApplianceConfig.model_fields:
        assert f"| `{name}` |" in page
