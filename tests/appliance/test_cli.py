import os
import pty
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

import appliance
from appliance import cli, options
from appliance.commands import cluster, config, group, topic
from appliance.session import Session
from broker import compiled
from tests.appliance.conftest import Odradek

REPOSITORY = Path(__file__).resolve().parents[2]
NOBODY = "127.0.0.1:1"


def test_the_version_stands_in_one_place(odradek: Odradek) -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "broker.VERSION"}
    assert odradek("version").ok().out.startswith(f"odradek {appliance.VERSION} ")


def test_version_tells_how_it_was_built(odradek: Odradek) -> None:
    told = odradek("version", "--format", "json").data[0]
    assert told["odradek"] == appliance.VERSION
    assert told["is_compiled"] is (compiled.why_not() is None)
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True
    )
    if done.returncode == 0:
        assert told["commit"] == done.stdout[:12]
        assert f"commit {told['commit']})" in odradek("version").ok().out


def test_version_imports_neither_client_nor_event_loop() -> None:
    """What keeps it under 300 ms; counted in modules, because milliseconds depend on the machine."""
    script = (
        "import sys; before = set(sys.modules); from appliance.cli import main; main(['version'])\n"
        "heavy = {'asyncio', 'confluent_kafka', 'kio', 'django', 'ssl', 'broker.server', 'email'}\n"
        "print(sorted(heavy & set(sys.modules)), len(set(sys.modules) - before) < 150)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import site; site.main(); {script}"],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
    )
    assert done.stdout.splitlines()[-1] == "[] True", done.stdout


@pytest.mark.parametrize(
    ("group", "prefix"),
    [
        (cli.cli, []),
        (cluster.cluster, ["cluster"]),
        (topic.topic, ["topic"]),
        (group.group, ["group"]),
        (config.config, ["config"]),
    ],
)
def test_every_command_can_be_loaded_and_explains_itself(
    group: click.Group, prefix: list[str], odradek: Odradek
) -> None:
    assert isinstance(group, options.LazyGroup)
    for name in (*group._lazy, *group._aliases):
        done = odradek(*prefix, name, "--help").ok()
        assert done.out.startswith("Usage: odradek")


def test_an_unknown_command_is_wrong_usage_and_gets_a_guess(odradek: Odradek) -> None:
    done = odradek("topik", "list")
    assert done.code == 2
    assert done.out == ""
    assert "Did you mean 'topic'?" in done.err


def test_a_group_of_commands_without_one_shows_them(odradek: Odradek) -> None:
    done = odradek("group")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Usage: odradek group")
    assert "10 unhealthy, 130 interrupted" in " ".join(odradek("--help").ok().out.split())


@pytest.mark.parametrize(
    "line", [["consume", "t", "-g", ""], ["group", "describe", ""], ["topic", "delete", ""]]
)
def test_names_cannot_be_empty(line: list[str], odradek: Odradek) -> None:
    done = odradek("-b", NOBODY, *line)
    assert done.code == 2
    assert "cannot be empty" in done.err


def test_wrong_options_are_wrong_usage(odradek: Odradek) -> None:
    for line in (["topic", "list", "--nope"], ["--format", "xml", "version"], ["consume"]):
        assert odradek(*line).code == 2


def test_no_connection_has_its_own_exit_code_and_says_what_to_do(odradek: Odradek) -> None:
    done = odradek("-b", NOBODY, "topic", "list")
    assert done.code == 3
    assert done.out == ""
    assert "connection refused" in done.err
    assert "odradek serve" in done.err


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_failure_still_leaves_one_document(form: str, odradek: Odradek) -> None:
    done = odradek("topic", "list", "-b", NOBODY, "--format", form)
    assert done.code == 3
    assert "NOT_CONNECTED" in done.out
    if form == "json":
        assert done.data == []
        assert done.document["errors"][0]["code"] == "NOT_CONNECTED"


def test_global_options_may_stand_anywhere_and_the_later_wins() -> None:
    session = Session()
    arguments = ["--timeout", "5s", "-b", "a:1", "-X", "x=1", "version", "-b", "b:2", "-X", "y=2"]
    cli.cli.main(arguments, standalone_mode=False, obj=session)
    assert session.bootstrap == "b:2"
    assert session.timeout_ms == 5000
    assert session.properties == {"x": "1", "y": "2"}


def test_the_address_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODRADEK_BOOTSTRAP", "env:1")
    session = Session()
    cli.cli.main(["version"], standalone_mode=False, obj=session)
    assert session.bootstrap == "env:1"


def test_kafkas_layout_is_only_for_commands_that_kafka_has(odradek: Odradek) -> None:
    assert odradek("status", "--format", "kafka").code == 2


def test_destructive_steps_want_a_terminal_or_yes(odradek: Odradek) -> None:
    session = Session()
    with pytest.raises(Exception, match="needs a confirmation"):
        session.confirm("delete topic x", "x")
    Session(assume_yes=True).confirm("delete topic x", "x")


@pytest.mark.parametrize(("typed", "is_confirmed"), [("orders", True), ("y", False)])
def test_the_name_itself_confirms(
    typed: str, is_confirmed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "r") as terminal, os.fdopen(ours, "wb", buffering=0) as keyboard:
        keyboard.write(f"{typed}\n".encode())
        monkeypatch.setattr(sys, "stdin", terminal)
        if is_confirmed:
            Session().confirm("delete topic orders", "orders")
        else:
            with pytest.raises(Exception, match="nothing was changed"):
                Session().confirm("delete topic orders", "orders")


def test_colour_needs_a_terminal_and_yields_to_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    assert Session().color_for(Terminal())
    assert not Session(no_color=True).color_for(Terminal())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not Session().color_for(Terminal())


@pytest.mark.parametrize(("text", "expected"), [("3", {3}), ("0,3-5", {0, 3, 4, 5}), ("1-1", {1})])
def test_partition_lists(text: str, expected: set[int]) -> None:
    assert options.PARTITIONS.convert(text, None, None) == expected


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "1,,2", "0-99999999"])
def test_what_is_no_partition_list_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        options.PARTITIONS.convert(text, None, None)


def test_an_interrupted_command_says_so(monkeypatch: pytest.MonkeyPatch, odradek: Odradek) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "emit", interrupt)
    assert odradek("version").code == 130


def test_our_own_mistakes_become_exit_code_one(
    monkeypatch: pytest.MonkeyPatch, odradek: Odradek
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(Session, "emit", fail)
    done = odradek("version")
    assert done.code == 1
    assert "ZeroDivisionError: oops" in done.err
    with pytest.raises(ZeroDivisionError):
        odradek("-v", "version")


def test_a_reader_that_leaves_early_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "appliance", "version"],
        stdout=writer,
        stderr=subprocess.PIPE,
        cwd=REPOSITORY,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
