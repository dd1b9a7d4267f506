import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from appliance.supervisor.serve_lock import (
    FILE_NAME,
    DataDirectoryTaken,
    ServeLock,
    find_broker,
    is_locked,
    posix_lock_holder,
    read_holder,
)


def test_the_second_one_learns_who_was_first(tmp_path: Path) -> None:
    lock = ServeLock.take(tmp_path, {"pid": 7, "kafka": "127.0.0.1:9092"})
    with pytest.raises(DataDirectoryTaken) as error:
        ServeLock.take(tmp_path, {"pid": 8})
    assert error.value.holder == {"pid": 7, "kafka": "127.0.0.1:9092"}
    lock.release()
    ServeLock.take(tmp_path, {"pid": 8}).release()
    assert read_holder(tmp_path / FILE_NAME) == {"pid": 8}


def test_a_lock_file_alone_locks_nothing(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    assert not is_locked(path)
    path.write_text("{broken")
    assert not is_locked(path)
    assert read_holder(path) == {}


def test_looking_at_the_lock_does_not_take_it(tmp_path: Path) -> None:
    lock = ServeLock.take(tmp_path, {})
    assert is_locked(tmp_path / FILE_NAME)
    lock.release()
    assert not is_locked(tmp_path / FILE_NAME)


def test_a_brokers_lock_tells_its_process(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    assert posix_lock_holder(path) is None
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        # A process does not see its own POSIX locks: another one has to look.
        script = (
            "import pathlib, sys; from appliance.supervisor.serve_lock import posix_lock_holder;"
            f"print(posix_lock_holder(pathlib.Path({str(path)!r})))"
        )
        seen = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[3],
        )
        assert seen.stdout.strip() == str(os.getpid())
    finally:
        os.close(descriptor)
    assert posix_lock_holder(path) is None


def test_a_broker_alone_is_found_by_its_own_lock(tmp_path: Path) -> None:
    assert find_broker(tmp_path) is None
    path = tmp_path / "broker.lock"
    path.write_text("4711\n")
    assert find_broker(tmp_path) is None
    with path.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert find_broker(tmp_path) == "4711"
