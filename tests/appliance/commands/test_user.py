"""``odradek user``: on a database that the web process has made, with what the audit log says of it."""

from pathlib import Path

import pytest

from tests.appliance.conftest import run_odradek
from tests.support.web import WebProcess

PASSWORD = "correct-horse-99"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A first start without a broker, and nobody signed in yet."""
    web = WebProcess(tmp_path_factory.mktemp("people"), "127.0.0.1:1")
    with web:
        pass
    return web.data


def test_users_are_made_changed_and_removed_from_the_shell(data: Path) -> None:
    run = run_odradek
    made = run(data, "user", "add", "olaf", "--role", "operator", "--format", "json")
    assert len(made.data[0]["password"]) > 15
    run(data, "user", "add", "vito", "--password-file", "-", stdin=f"{PASSWORD}\n").ok()
    rows = {row["user"]: row for row in run(data, "user", "list", "--format", "json").data}
    assert rows["olaf"]["role"] == "operator"
    assert rows["olaf"]["state"] == "must change password"
    assert (rows["vito"]["role"], rows["vito"]["state"]) == ("viewer", "ok")
    run(data, "user", "role", "olaf", "vito", "admin").ok()
    run(data, "user", "passwd", "olaf", "--password-file", "-", stdin=f"{PASSWORD}\n").ok()
    run(data, "user", "rm", "olaf", "vito", "--yes").ok()
    assert not {"olaf", "vito"} & {
        row["user"] for row in run(data, "user", "list", "--format", "json").data
    }


def test_a_weak_password_an_unknown_user_and_the_last_admin_are_refused(data: Path) -> None:
    run = run_odradek
    weak = run(data, "user", "add", "wim", "--password-file", "-", stdin="123\n")
    assert weak.code == 1
    assert "too short" in weak.err
    assert run(data, "user", "passwd", "nobody").code == 1
    names = [row["user"] for row in run(data, "user", "list", "--format", "json").data]
    admins = run(data, "user", "rm", *names, "--yes")
    assert admins.code == 1
    assert "is the last admin" in admins.err
    assert any(row["role"] == "admin" for row in run(data, "user", "list", "--format", "json").data)


def test_without_a_database_it_says_how_to_get_one(tmp_path: Path) -> None:
    done = run_odradek(tmp_path, "user", "list")
    assert done.code == 1
    assert "`odradek serve` makes it" in done.err
