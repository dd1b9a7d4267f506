"""The file that tells the dashboard of restarts."""

import json
from pathlib import Path

import pytest

from appliance.supervisor.restart_record import FILE_NAME, MAX_RESTARTS, RestartRecord
from dashboard.alerting.sources import CHILDREN_FILE, read_restarts


class ManualClock:
    now_ms = 0

    def wall_ms(self) -> int:
        self.now_ms += 1
        return self.now_ms

    monotonic_ms = wall_ms


def test_the_dashboard_reads_what_was_noted(tmp_path: Path) -> None:
    record = RestartRecord(tmp_path, ["broker", "web"], ManualClock())
    assert read_restarts(tmp_path / CHILDREN_FILE) == {"broker": (), "web": ()}

    record.note("web")
    record.note("web")

    assert read_restarts(tmp_path / CHILDREN_FILE) == {"broker": (), "web": (1, 2)}


def test_each_serve_begins_anew(tmp_path: Path) -> None:
    RestartRecord(tmp_path, ["web"], ManualClock()).note("web")
    RestartRecord(tmp_path, ["web"], ManualClock())

    assert read_restarts(tmp_path / FILE_NAME) == {"web": ()}


def test_the_newest_are_kept(tmp_path: Path) -> None:
    record = RestartRecord(tmp_path, ["web"], ManualClock())
    for _ in range(MAX_RESTARTS + 5):
        record.note("web")

    kept = json.loads((tmp_path / FILE_NAME).read_text())["children"]["web"]["restarts_ms"]
    assert kept == list(range(6, MAX_RESTARTS + 6))


def test_a_directory_that_takes_nothing_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = RestartRecord(tmp_path, ["web"], ManualClock())

    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", no_room)
    record.note("web")
