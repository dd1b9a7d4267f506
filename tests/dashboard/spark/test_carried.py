"""What a single executable carries is unpacked once, held while it is used, and its faults are said.

Shell scripts stand for the executable here; tests/appliance/test_binary.py has the real one.
"""

import fcntl
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dashboard.spark import carried
from dashboard.spark.home import home_of, lock

MAKE = 'echo made >>"$0.calls"; mkdir -p {place}; : >{place}/.lock'


class Executable:
    def __init__(self, directory: Path) -> None:
        self.path = directory / "odradek"
        self.place = directory / "cache" / ("a" * 32)

    def does(self, script: str) -> None:
        self.path.write_text(f'#!/bin/sh\n[ "$1" = --unpack-spark ] || exit 9\n{script}\n')
        self.path.chmod(0o755)

    @property
    def calls(self) -> int:
        return len((self.path.parent / "odradek.calls").read_text().splitlines())

    def is_free(self) -> bool:
        """Whether an executable of another version would remove it."""
        with (self.place / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True


@pytest.fixture
def executable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Executable:
    made = Executable(tmp_path)
    monkeypatch.setenv(carried.DIRECTORY_VARIABLE, str(made.place))
    monkeypatch.setenv(carried.EXECUTABLE_VARIABLE, str(made.path))
    return made


def use(executable: Executable, wait: Callable[[], None] = lambda: None) -> None:
    with carried.held(executable.place, wait):
        pass


def test_it_is_unpacked_once_and_nobody_may_remove_it_while_it_is_used(
    executable: Executable,
) -> None:
    executable.does(MAKE.format(place=executable.place))
    with carried.held(executable.place, lambda: None):
        assert not executable.is_free()
        use(executable)
        assert not executable.is_free()
    assert executable.is_free()
    assert executable.calls == 1


def test_it_is_unpacked_again_after_another_version_has_removed_it(executable: Executable) -> None:
    executable.does(MAKE.format(place=executable.place))
    use(executable)
    (executable.place / ".lock").unlink()
    executable.place.rmdir()
    use(executable)
    assert executable.calls == 2


def test_what_the_executable_complains_of_is_said(executable: Executable) -> None:
    executable.does("echo 'odradek: cannot write there: No space left on device' >&2; exit 1")
    with pytest.raises(carried.NotUnpacked, match=r"^cannot write there: No space left on device$"):
        use(executable)


def test_an_executable_that_went_away_is_said(executable: Executable) -> None:
    with pytest.raises(carried.NotUnpacked, match="cannot be run: No such file or directory"):
        use(executable)


def test_an_executable_that_became_another_version_is_said(executable: Executable) -> None:
    executable.does(MAKE.format(place=executable.place.with_name("b" * 32)))
    with pytest.raises(carried.NotUnpacked, match="carries another Spark"):
        use(executable)


def test_who_waits_may_end_the_unpacking(executable: Executable) -> None:
    executable.does('echo $$ >"$0.pid"; exec sleep 600')
    noted = executable.path.parent / "odradek.pid"

    def cancel() -> None:
        if noted.exists() and noted.read_text().strip():
            raise KeyError

    with pytest.raises(KeyError):
        use(executable, cancel)
    assert not Path("/proc", noted.read_text().strip()).exists()


def test_a_spark_that_was_chosen_or_prepared_comes_first(
    executable: Executable, tmp_path: Path
) -> None:
    assert home_of(tmp_path, tmp_path / "mine").directory == tmp_path / "mine"
    home = home_of(tmp_path, None)
    assert (home.directory, home.is_carried) == (executable.place, True)
    assert not home.is_prepared
    missing = home.missing()
    assert missing is None or "Java" in missing.what
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "prepared.json").write_text(json.dumps(lock()))
    assert home_of(tmp_path, None).directory == tmp_path / "spark"
