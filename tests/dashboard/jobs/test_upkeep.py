"""Jobs that ask the broker: by a real one where it matters what it does, by a told one where not."""

from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from dashboard import broker_api, room, run_logs
from dashboard.broker_api import BrokerApi
from dashboard.jobs import export, sampling, upkeep
from dashboard.models import JobRun
from dashboard.room import NoRoom, Room
from dashboard.services import audit, jobs, schedules
from dashboard.services.schedules import Asked
from tests.support import judge, requests
from tests.support.odradek import OdradekBroker
from tests.support.record_batches import batch
from tests.support.wire import Wire

pytestmark = pytest.mark.django_db
HERE = {"node_id": 1, "started_ms": 1000}


class Context:
    run_id, target = 1, ""

    def __init__(self, **parameters: Any) -> None:
        self.parameters = parameters
        self.said: list[str] = []

    def progress(self, done: int, total: int | None = None, text: str = "") -> None:
        pass

    def log(self, text: str) -> None:
        self.said.append(text)


class Told:
    """A broker that answers what it was told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[str, dict[str, Any]]] = []
        monkeypatch.setattr(broker_api, "local", lambda: self)

    def ask(self, command: str, **arguments: Any) -> Any:
        self.asked.append((command, arguments))
        return self.answers.get(command)

    def ask_patiently(self, command: str, tell: Any, **arguments: Any) -> Any:
        tell()
        return self.ask(command, **arguments)

    def node(self) -> Any:
        return type("Node", (), HERE)


def result(partition: int, reason: str, segments: int, size: int) -> dict[str, Any]:
    return {
        "topic": "orders", "partition": partition, "reason": reason,
        "segments": segments, "bytes": size, "log_start_offset": 9,
    }  # fmt: skip


def unasked(number: int) -> dict[str, Any]:
    return {
        "number": number, "by": "timer", "started_ms": 60_000 * number, "took_ms": 250,
        "results": [result(0, "time", 1, 10)], "segments": 1, "bytes": 10, "left_out": 0,
    }  # fmt: skip


def test_what_went_is_summed_by_topic_with_the_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    results = [result(0, "time", 2, 20), result(0, "size", 1, 5), result(1, "time", 1, 10)]
    told = {"results": results, "segments": 4, "bytes": 35, "left_out": 0}
    broker = Told(monkeypatch, retention=told)
    context = Context(topics=["orders"])
    found = upkeep.retention(context)
    reasons = {"time": {"segments": 3, "bytes": 30}, "size": {"segments": 1, "bytes": 5}}
    assert found == {
        "segments": 4,
        "bytes": 35,
        "topics": {"orders": {"segments": 4, "bytes": 35, "reasons": reasons}},
        "left_out": 0,
    }
    assert broker.asked[-1] == ("retention", {"topics": ["orders"]})
    assert len(context.said) == 3


def test_a_broker_that_is_down_is_a_failure_and_another_cluster_is_nothing_to_do(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    Told(monkeypatch)
    settings.ODRADEK_CLUSTER = ""
    with pytest.raises(upkeep.BrokerSilent, match="the broker does not answer"):
        upkeep.retention(Context())
    settings.ODRADEK_CLUSTER = "elsewhere:9092"
    assert upkeep.retention(Context()) is None
    assert upkeep.expire_offsets(Context()) is None


def test_what_the_broker_did_unasked_becomes_rows_once(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Told(monkeypatch, retention_runs={"runs": [unasked(1), unasked(2)]})
    assert upkeep.record_unasked() == 2
    broker.answers["retention_runs"] = {"runs": [unasked(2), unasked(3)]}
    assert upkeep.record_unasked() == 1
    run = JobRun.objects.order_by("queued_at").first()
    assert run is not None
    assert (run.trigger, run.state, run.took_ms) == ("broker", "ok", 250)
    assert run.result["topics"]["orders"]["bytes"] == 10


def cleaned(partition: int, end_ms: int, error: str | None = None) -> dict[str, Any]:
    return {
        "topic": "states", "partition": partition, "started_ms": end_ms - 40, "duration_ms": 40,
        "bytes_before": 100, "bytes_after": 30, "records_before": 10, "records_after": 3,
        "error": error,
    }  # fmt: skip


def test_what_the_broker_compacted_becomes_a_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = {"topic": "states", "partition": 1, "reason": "damaged"}
    runs = [cleaned(0, 1000), cleaned(1, 2000, "damaged")]
    broker = Told(monkeypatch, cleaner={"last_runs": runs, "uncleanable": [stuck]})
    result = upkeep.compacted(Context())
    assert result is not None
    assert result["topics"]["states"]["bytes_before"] == 200
    assert (result["uncleanable"], result["until_ms"]) == ([stuck], 2000)
    now = timezone.now()
    JobRun.objects.create(job="compaction-record", state="ok", queued_at=now, result=result)
    assert upkeep.compacted(Context()) is None
    broker.answers["cleaner"]["last_runs"].append(cleaned(0, 3000))
    again = upkeep.compacted(Context())
    assert again is not None
    assert again["topics"]["states"]["partitions"] == 1


def test_compaction_is_asked_for_and_followed_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "POLL_S", 0)
    place = {"topic": "states", "partition": 0}
    far = 10**15
    busy = {"queued": [], "running": [place], "last_runs": [], "uncleanable": []}
    done = {"queued": [], "running": [], "last_runs": [cleaned(0, far)], "uncleanable": []}
    answers = iter([busy, busy, done])
    broker = Told(monkeypatch, compact={"queued": [place]})
    real = broker.ask
    monkeypatch.setattr(
        broker, "ask", lambda c, **a: next(answers) if c == "cleaner" else real(c, **a)
    )
    result = upkeep.compaction(Context(topics=["states"]))
    assert result is not None
    assert result["topics"]["states"]["bytes_after"] == 30
    assert broker.asked == [("compact", {"topics": ["states"], "roll": True})]
    assert next(answers, None) is None


def test_a_real_broker_deletes_and_tells_and_expires_offsets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with OdradekBroker(tmp_path / "broker") as broker, Wire(broker.address) as wire:
        api = BrokerApi(broker.data)
        monkeypatch.setattr(broker_api, "local", lambda: api)
        topic = requests.create_topic(
            wire, configs={"segment.bytes": "1048576", "retention.bytes": "1048576"}
        )
        for turn in range(4):
            requests.produce(
                wire, topic, batch([b"%d" % turn + bytes(900_000)], timestamp=requests.now_ms())
            )
        found = upkeep.retention(Context(topics=[topic]))
        assert found is not None
        assert found["topics"][topic]["reasons"].keys() == {"size"}
        assert upkeep.retention(Context()) is None
        assert upkeep.expire_offsets(Context()) is None
        assert api.ask("retention_runs") == {"ok": True, "runs": []}


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "look", lambda: Room(50 << 20, 200 << 20))


def test_without_room_only_retention_is_asked_for_and_nothing_else_is_written(
    no_room: None, monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path
) -> None:
    from broker.clock import SystemClock

    settings.DATA_DIR = tmp_path
    monkeypatch.setattr(jobs, "ring", lambda run: None)
    for name in ("retention", "clean-up"):
        asked = Asked(name=name, job=name, every=10, period="minutes")
        task = schedules.save(actor=audit.SYSTEM, asked=asked)
        long_ago = task.date_changed.replace(year=2020)
        type(task).objects.filter(pk=task.pk).update(last_run_at=long_ago)
    assert schedules.fire_due() == 1
    assert JobRun.objects.get().job == "retention"
    run_logs.RunLog(1, SystemClock()).write("a line")
    assert run_logs.read(1) is None
    with pytest.raises(NoRoom, match=r"50\.0 MiB are free, less than the 200 MiB"):
        export.run(Context(request={"format": "csv"}))


def test_samples_are_kept_only_while_there_is_room(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from types import SimpleNamespace

    from broker.clock import SystemClock
    from dashboard import collector
    from dashboard.samples import Samples
    from dashboard.snapshots import SnapshotShelf

    shelf, file = SnapshotShelf(), tmp_path / "samples.db"
    seen: Any = SimpleNamespace(taken_ms=SystemClock().wall_ms())
    shelf.update(lambda _: seen)
    nobody: Any = None
    monkeypatch.setattr(collector, "series_of", lambda _: {"cluster.size": 1.0})
    one = collector.Collector(nobody, shelf, SystemClock(), samples=Samples(file))
    for free_bytes, is_kept in ((50 << 20, False), (1 << 40, True)):
        found = Room(free_bytes, 200 << 20)
        monkeypatch.setattr(room, "look", lambda found=found: found)
        one._keep_history(seen, nobody)
        assert file.exists() == is_kept


@pytest.fixture
def room_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is enough when a run begins, and not any more when it is next asked."""
    looks = iter([Room(1 << 40, 200 << 20)])
    monkeypatch.setattr(room, "look", lambda: next(looks, Room(50 << 20, 200 << 20)))


class Endless:
    """A child process, or Spark, that never comes to an end. ``ask`` names the file it writes."""

    ended = 0

    def __init__(self, *_: Any) -> None:
        pass

    def ask(self, request: Any) -> None:
        Path(request.path).write_bytes(b"half")

    def read(self, _: float) -> None:
        return None

    def end(self) -> None:
        Endless.ended += 1

    kill = end


def test_an_export_that_runs_ends_when_room_gets_short_and_leaves_nothing(
    room_for_once: None, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import asdict

    from dashboard.scan.requests import ExportRequest, Range, Wanted
    from dashboard.services import exports

    settings.DATA_DIR = tmp_path
    monkeypatch.setattr(export, "ScanChild", Endless)
    monkeypatch.setattr(Endless, "ended", 0)
    request = ExportRequest(
        exports.cluster(), Range("orders"), Wanted(), exports.BOUNDS, "", "csv", 0
    )
    with pytest.raises(NoRoom):
        export.run(Context(request=asdict(request)))
    assert Endless.ended == 1
    assert list((tmp_path / "exports").iterdir()) == []


def test_a_report_does_not_begin_without_room_and_ends_when_it_gets_short(
    room_for_once: None, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dashboard.jobs import report as job
    from dashboard.models import Report
    from dashboard.spark.home import SparkHome

    settings.DATA_DIR = tmp_path
    Report.objects.create(name="lag", kind="consumer-lag", topics="", parameters={}, format={})
    monkeypatch.setattr(SparkHome, "missing", lambda self: None)
    monkeypatch.setattr(job, "RENEW_MS", -1)
    monkeypatch.setattr(job, "ReportProcess", Endless)
    monkeypatch.setattr(Endless, "ended", 0)
    context = Context()
    context.target = "lag"
    with pytest.raises(NoRoom):
        job.run(context)
    assert Endless.ended == 1
    assert list((tmp_path / "reports" / "lag").iterdir()) == []
    with pytest.raises(NoRoom):
        job.run(context)
    assert Endless.ended == 1


def test_a_log_keeps_its_head_and_its_end(settings: Any, tmp_path: Path) -> None:
    from broker.clock import SystemClock

    settings.DATA_DIR = tmp_path
    log = run_logs.RunLog(7, SystemClock())
    log.write("the beginning")
    for number in range(40):
        log.write(f"{number} " + "x" * 100_000)
    log.write("the end")
    text = run_logs.read(7) or ""
    assert log.path.stat().st_size <= 2 * run_logs.MAX_BYTES
    assert "the beginning" in text
    assert text.rstrip().endswith("the end")
    assert text.count("the middle of this log was too long") == 1
    kept = [path.stat().st_size for path in run_logs.directory().iterdir()]
    assert sum(kept) == log.path.stat().st_size
    assert run_logs.sweep(frozenset({7})) == 0
    assert run_logs.sweep(frozenset()) == 1


def test_samples_are_taken_here_only_while_the_web_process_takes_none(
    settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.DATA_DIR = tmp_path
    assert sampling.age_ms() == float("inf")
    settings.ODRADEK_CLUSTER = f"127.0.0.1:{judge.free_port()}"
    with pytest.raises(sampling.NothingSampled):
        sampling.sample(Context())
    (tmp_path / "samples.db").touch()
    assert sampling.age_ms() < sampling.SILENT_MS
    assert sampling.sample(Context()) is None
