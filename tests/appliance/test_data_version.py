"""Directories of other versions. The real layout has no step yet, so steps are made up here."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from appliance import data_version
from appliance.data_version import Step, bring_up_to_date
from appliance.failure import CommandError
from broker.model.data_layout import LAYOUT, LAYOUT_NAME, read_layout
from broker.server.data_directory import refuse_newer_layout
from broker.server.start_error import StartError
from tests.appliance.conftest import Odradek, run_odradek
from tests.support import processes
from tests.support.odradek import REPOSITORY
from tests.support.web import DATABASE, filled


def write_layout(data: Path, layout: int, version: str = "0.0.9") -> None:
    (data / LAYOUT_NAME).write_text(json.dumps({"layout": layout, "version": version}))


def test_a_first_start_writes_the_layout(tmp_path: Path) -> None:
    bring_up_to_date(tmp_path, pytest.fail)
    assert read_layout(tmp_path) == (LAYOUT, data_version.VERSION)
    bring_up_to_date(tmp_path, pytest.fail)


def test_an_older_directory_is_brought_up_to_date_and_what_it_was_is_kept(tmp_path: Path) -> None:
    write_layout(tmp_path, LAYOUT - 2)
    (tmp_path / "names").write_text("old")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "1").write_text("one")
    said: list[str] = []

    def first(data: Path) -> None:
        (data / "names").write_text("newer")

    def second(data: Path) -> None:
        assert (data / "names").read_text() == "newer"
        (data / "runs" / "1").rename(data / "runs" / "one")

    steps = {LAYOUT - 2: Step(("names", "absent"), first), LAYOUT - 1: Step(("runs",), second)}
    bring_up_to_date(tmp_path, said.append, steps)
    assert read_layout(tmp_path) == (LAYOUT, data_version.VERSION)
    assert (tmp_path / "runs" / "one").read_text() == "one"
    assert (tmp_path / f"before-layout-{LAYOUT - 1}" / "names").read_text() == "old"
    assert (tmp_path / f"before-layout-{LAYOUT}" / "runs" / "1").read_text() == "one"
    assert len(said) == 2
    assert f"before-layout-{LAYOUT}" in said[1]


def test_an_interrupted_step_is_taken_anew_from_the_copies(tmp_path: Path) -> None:
    write_layout(tmp_path, LAYOUT - 1)
    (tmp_path / "names").write_text("old")

    def interrupted(data: Path) -> None:
        (data / "names").write_text((data / "names").read_text() + " and hal")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bring_up_to_date(tmp_path, pytest.fail, {LAYOUT - 1: Step(("names",), interrupted)})

    def whole(data: Path) -> None:
        (data / "names").write_text((data / "names").read_text() + " and new")

    bring_up_to_date(tmp_path, lambda text: None, {LAYOUT - 1: Step(("names",), whole)})
    assert (tmp_path / "names").read_text() == "old and new"
    assert read_layout(tmp_path) == (LAYOUT, data_version.VERSION)


#: A step of two layouts, killed where its second argument says.
KILLED = """
import os, signal, sys
from pathlib import Path
from appliance import data_version
from appliance.data_version import Step, bring_up_to_date
from broker.model.data_layout import LAYOUT

data, at = Path(sys.argv[1]), sys.argv[2]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def change(data):
    text = (data / "names").read_text()
    (data / "names").write_text(text[:1])
    if at == "half of the change":
        die()
    (data / "names").write_text(text + " and new")
    if at == "all of the change":
        die()

if at == "copies that have no name yet":
    os.sync = die
if at == "what is written last":
    data_version._write = die
bring_up_to_date(data, print, {LAYOUT - 1: Step(("names",), change)})
"""


@pytest.mark.parametrize(
    "at",
    [
        *("copies that have no name yet", "half of the change", "all of the change"),
        "what is written last",
    ],
)
def test_a_step_that_is_killed_is_taken_once_in_the_end(at: str, tmp_path: Path) -> None:
    write_layout(tmp_path, LAYOUT - 1)
    (tmp_path / "names").write_text("old")

    def upgrade(at: str) -> int:
        command = [sys.executable, "-c", KILLED, str(tmp_path), at]
        return subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL).returncode

    for _ in range(2):
        assert upgrade(at) == -signal.SIGKILL
        assert read_layout(tmp_path) == (LAYOUT - 1, "0.0.9")
    assert upgrade("nowhere") == 0
    assert (tmp_path / "names").read_text() == "old and new"
    assert (tmp_path / f"before-layout-{LAYOUT}" / "names").read_text() == "old"
    assert read_layout(tmp_path) == (LAYOUT, data_version.VERSION)
    assert not list(tmp_path.glob("*.tmp"))


def test_what_no_step_leads_away_from_is_too_old(tmp_path: Path) -> None:
    write_layout(tmp_path, LAYOUT - 1, "0.0.1")
    with pytest.raises(CommandError, match=r"written by Odradek 0\.0\.1, which is too old"):
        bring_up_to_date(tmp_path, pytest.fail)


@pytest.mark.parametrize(
    "line",
    [
        ["job", "list"],
        ["user", "list"],
        ["report", "list"],
        ["config", "show"],
        ["spark", "status"],
        ["cluster", "move-to-zookeeper", "127.0.0.1:1"],
        ["topic", "repair", "orders"],
        ["serve"],
    ],
    ids=" ".join,
)
def test_every_command_refuses_a_newer_directory(
    line: list[str], odradek: Odradek, tmp_path: Path
) -> None:
    write_layout(tmp_path, LAYOUT + 1, "9.0")
    done = odradek(*line, "--data", tmp_path)
    assert done.code == 1
    assert "was written by Odradek 9.0, which is newer than this" in done.err


def test_a_broker_by_itself_refuses_one_too(tmp_path: Path) -> None:
    refuse_newer_layout(tmp_path)
    write_layout(tmp_path, LAYOUT + 1, "9.0")
    with pytest.raises(StartError, match="newer"):
        refuse_newer_layout(tmp_path)


def make_older_database(path: Path) -> None:
    made, _ = filled()
    with (
        closing(sqlite3.connect(made / DATABASE)) as source,
        closing(sqlite3.connect(path)) as target,
    ):
        source.backup(target)
    take_sessions_out(path)


def take_sessions_out(path: Path) -> None:
    """As if the migrations of sessions were of a newer version than the database."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("DELETE FROM django_migrations WHERE app = 'sessions'")
        database.execute("DROP TABLE django_session")
        database.commit()


def test_a_database_is_kept_before_its_tables_change(tmp_path: Path) -> None:
    """Brought up to date by the command that every web process starts with."""
    make_older_database(tmp_path / DATABASE)
    for _ in range(2):
        said = migrate(tmp_path)
        kept = tmp_path / f"{DATABASE}.before-upgrade"
        assert kept.stat().st_mode & 0o777 == 0o600
    assert said == ""  # the second time there was nothing to do
    with closing(sqlite3.connect(kept)) as before:
        tables = {name for (name,) in before.execute("SELECT name FROM sqlite_master")}
    assert "django_session" not in tables
    assert not list(tmp_path.glob("*.upgrading"))
    assert run_odradek(tmp_path, "user", "list").ok()


def test_an_upgrade_that_was_cut_off_does_not_cost_the_copy(tmp_path: Path) -> None:
    """One of two migrations was made, then the power went."""
    path, kept = tmp_path / DATABASE, tmp_path / f"{DATABASE}.before-upgrade"
    make_older_database(path)
    kept.write_text("as it was")
    (tmp_path / f"{DATABASE}.upgrading").write_text('["other.0001", "sessions.0001_initial"]')
    migrate(tmp_path)
    assert kept.read_text() == "as it was"
    assert not list(tmp_path.glob("*.upgrading"))
    # A later upgrade has a copy of its own, whatever an older one left behind.
    take_sessions_out(path)
    (tmp_path / f"{DATABASE}.upgrading").write_text('["other.0001"]')
    migrate(tmp_path)
    assert kept.read_bytes().startswith(b"SQLite")


def test_an_upgrade_of_the_database_that_is_killed_is_gone_on_with(tmp_path: Path) -> None:
    path, kept = tmp_path / DATABASE, tmp_path / f"{DATABASE}.before-upgrade"
    make_older_database(path)
    process = subprocess.Popen(MIGRATE, env=environment_of(tmp_path), stderr=subprocess.DEVNULL)
    processes.wait_until(lambda: process.poll() is not None or kept.exists(), 60, "the copy")
    process.kill()
    assert process.wait() == -signal.SIGKILL
    migrate(tmp_path)
    with closing(sqlite3.connect(kept)) as before, closing(sqlite3.connect(path)) as after:
        tables = [
            {name for (name,) in each.execute("SELECT name FROM sqlite_master")}
            for each in (before, after)
        ]
    assert tables[1] - tables[0] >= {"django_session"}
    assert not list(tmp_path.glob("*.upgrading"))
    assert run_odradek(tmp_path, "user", "list").ok()


MIGRATE = [sys.executable, "-m", "appliance.migrate"]


def environment_of(data: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"}
    return kept | {"ODRADEK_DATA": str(data)}


def migrate(data: Path) -> str:
    done = subprocess.run(
        MIGRATE,
        env=environment_of(data),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stderr
