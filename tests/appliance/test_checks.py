import itertools
import os
import socket
import threading
from pathlib import Path

import pytest

from appliance import checks
from appliance.checks import Verdict
from appliance.supervisor.preflight import bind_problem
from appliance.supervisor.serve_lock import ServeLock
from broker import compiled
from dashboard.spark.java import java_major

MOUNTS = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 22 0:26 / /tmp rw - tmpfs tmpfs rw
31 22 0:27 / /data rw - btrfs /dev/sdb rw
32 22 0:28 / /data/my\\040logs rw - nfs4 server:/x rw
garbage
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home", "ext4"),
        ("/tmp/x", "tmpfs"),
        ("/data", "btrfs"),
        ("/data/my logs/a", "nfs4"),
        ("/database", "ext4"),
    ],
)
def test_the_innermost_mount_decides(path: str, kind: str) -> None:
    assert checks.file_system_of(Path(path), MOUNTS) == kind


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("command not found", None),
    ],
)
def test_java_versions(text: str, major: int | None) -> None:
    assert java_major(text) == major


def test_an_interpreted_hot_path_is_told_and_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "why_not", lambda: "not built")
    found = checks.check_hot_path()
    assert found.verdict is Verdict.INFO
    assert "interpreted (not built)" in found.detail
    monkeypatch.setattr(compiled, "why_not", lambda: None)
    assert checks.check_hot_path().verdict is Verdict.OK


def test_a_missing_java_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert checks.check_java().verdict is Verdict.INFO


def test_files_from_the_future_betray_a_clock_that_went_back(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    os.utime(tmp_path / "x", (2_000_000_000, 2_000_000_000))
    found = checks.check_clock(tmp_path, 1_900_000_000_000)
    assert found.verdict is Verdict.WARN
    assert "100000000 s from the future" in found.detail


def test_clocks_of_other_brokers_may_differ_by_a_second() -> None:
    told = [
        {"broker_id": 2, "ahead_ms": 900, "doubt_ms": 1},
        {"broker_id": 3, "ahead_ms": -1900, "doubt_ms": 1000},
        {"broker_id": 4, "ahead_ms": -5000, "doubt_ms": 3},
        {"broker_id": 5, "error": "no answer"},
    ]
    found = checks.check_other_clocks(told)
    assert [each.verdict for each in found] == [
        *(checks.Verdict.OK, checks.Verdict.OK, checks.Verdict.WARN, checks.Verdict.INFO)
    ]
    assert found[2].detail == "5000 ms behind this broker's"


def test_the_kernel_can_be_asked_for_the_state_of_its_clock() -> None:
    assert checks.kernel_clock_state() in (*range(6), None)


def test_a_data_directory_tells_who_holds_it(tmp_path: Path) -> None:
    assert "not in use" in checks.check_data_directory(tmp_path).detail
    lock = ServeLock.take(tmp_path, {"pid": 4711})
    assert "process 4711" in checks.check_data_directory(tmp_path).detail
    lock.release()


def test_a_data_directory_that_is_a_file_fails(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    assert checks.check_data_directory(path).verdict is Verdict.FAIL


def test_a_data_directory_may_be_made_later(tmp_path: Path) -> None:
    found = checks.check_data_directory(tmp_path / "a" / "b")
    assert found.verdict is Verdict.OK
    assert not (tmp_path / "a").exists()


def test_disk_space_is_told_for_a_directory_to_come(tmp_path: Path) -> None:
    assert "free" in checks.check_disk(tmp_path / "a").detail


def test_a_port_taken_by_something_else_fails() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        address = listening.getsockname()

        def hang_up() -> None:
            listening.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        assert checks.check_port(address, bind_problem).verdict is Verdict.FAIL
        thread.join()
    assert checks.check_port(address, bind_problem).verdict is Verdict.OK


def test_what_is_advertised_is_dialed() -> None:
    dialed = []

    def dial(address: tuple[str, int]) -> None:
        dialed.append(address)
        if address[0] == "10.0.0.1":
            raise OSError("no route to host")

    found = checks.check_advertised([(1, "127.0.0.1", 9092), (2, "10.0.0.1", 9092)], dial=dial)
    assert [check.verdict for check in found] == [Verdict.OK, Verdict.FAIL]
    assert "--advertised" in (found[1].hint or "")
    assert dialed == [("127.0.0.1", 9092), ("10.0.0.1", 9092)]


def test_listeners_of_other_networks_are_dialed_too() -> None:
    def dial(address: tuple[str, int]) -> None:
        if address[0] == "10.0.0.1":
            raise OSError("no route to host")

    told = checks.parse_listeners(
        "IN://127.0.0.1:9092, OUT://10.0.0.1:9093,V6://[::1]:9094,ANY://:1"
    )
    assert told == {"IN": ("127.0.0.1", 9092), "OUT": ("10.0.0.1", 9093), "V6": ("::1", 9094)}
    found = checks.check_other_listeners(1, told, ("127.0.0.1", 9092), dial=dial)
    assert [(check.name, check.verdict) for check in found] == [
        ("listener OUT of broker 1", Verdict.WARN),
        ("listener V6 of broker 1", Verdict.OK),
    ]


def test_listeners_that_are_not_told_are_none() -> None:
    assert checks.parse_listeners(None) == {}
    assert checks.parse_listeners("") == {}


def test_few_maps_are_told_with_the_command_that_mends_it(tmp_path: Path) -> None:
    path = tmp_path / "max_map_count"
    path.write_text("65530\n")
    assert checks.check_maps(path).verdict is Verdict.OK
    path.write_text("1024\n")
    found = checks.check_maps(path)
    assert found.verdict is Verdict.WARN
    assert "sysctl -w vm.max_map_count=" in str(found.hint)
    assert checks.check_maps(tmp_path / "none").verdict is Verdict.INFO


@pytest.mark.parametrize(("ms", "verdict"), [(1, Verdict.OK), (80, Verdict.WARN)])
def test_a_slow_disk_is_told(ms: int, verdict: Verdict, tmp_path: Path) -> None:
    times = itertools.count(0, ms * 1_000_000)
    found = checks.check_sync(tmp_path / "new", lambda: next(times))
    assert (found.verdict, found.detail) == (verdict, f"4 KB in {ms}.0 ms, {ms}.0 ms at most")
    assert not list(tmp_path.iterdir())
