"""Schedules fired by clocks of the test: once a due time, once after a stop, once by three beats."""

import datetime as dt
import json
import threading
from collections import Counter

import pytest
from django.db import connections
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from dashboard import jobs as job_table
from dashboard.models import AuditEntry, JobRun
from dashboard.services import audit, jobs, schedules
from dashboard.services.schedules import Asked, ScheduleRefused

pytestmark = pytest.mark.django_db(transaction=True)
T0 = dt.datetime(2026, 6, 1, 12, 0, tzinfo=dt.UTC)
MINUTE, HOUR = dt.timedelta(minutes=1), dt.timedelta(hours=1)


@pytest.fixture(autouse=True)
def rung(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    found: list[int] = []
    monkeypatch.setattr(jobs, "ring", lambda run: found.append(run.pk))
    monkeypatch.setitem(job_table.KINDS, "long", job_table.JobKind("long", "Long", "", ""))
    return found


def make(name: str = "tidy", *, since: dt.datetime = T0, **asked: object) -> PeriodicTask:
    given = {"name": name, "job": "clean-up", "every": 10, "period": "minutes", **asked}
    task = schedules.save(actor=audit.SYSTEM, asked=Asked(**given))  # type: ignore[arg-type]
    PeriodicTask.objects.filter(pk=task.pk).update(last_run_at=since)
    return task


def finish_all() -> None:
    JobRun.objects.filter(state__in=JobRun.UNFINISHED).update(state=JobRun.State.OK)


def fire_each_minute(begin: dt.datetime, end: dt.datetime) -> list[dt.datetime]:
    """Beat that looks every minute, of jobs that end at once; when runs were asked for."""
    fired, now = [], begin
    while now < end:
        if schedules.fire_due(now=now):
            fired.append(now)
            finish_all()
        now += MINUTE
    return fired


def test_an_interval_fires_each_time_and_does_not_drift() -> None:
    make()
    late = [T0 + 10 * MINUTE * turn + dt.timedelta(seconds=turn * 7) for turn in range(1, 20)]
    for now in late:
        assert schedules.fire_due(now=now) == 1
        assert schedules.fire_due(now=now) == 0
        finish_all()
    assert PeriodicTask.objects.get(name="tidy").last_run_at == T0 + 190 * MINUTE


@pytest.mark.parametrize(
    ("day", "hours"), [(dt.date(2026, 3, 29), 23), (dt.date(2026, 10, 25), 25)]
)
def test_the_nights_on_which_clocks_change(day: dt.date, hours: int) -> None:
    zone = dt.timedelta(hours=2 if day.month == 10 else 1)
    begin = dt.datetime.combine(day, dt.time(), tzinfo=dt.UTC) - zone
    make(
        "hourly",
        every=None,
        expression="0 * * * *",
        zone="Europe/Berlin",
        target="h",
        since=begin - MINUTE,
    )
    make(
        "daily",
        every=None,
        expression="30 2 * * *",
        zone="Europe/Berlin",
        target="d",
        since=begin - MINUTE,
    )
    fire_each_minute(begin, begin + hours * HOUR)
    counts = Counter(JobRun.objects.values_list("schedule__name", flat=True))
    assert counts == {"hourly": hours, "daily": 1}


@pytest.mark.parametrize("hour", [8, 9])
def test_a_last_run_in_the_hour_that_comes_twice_is_no_trouble(hour: int) -> None:
    """C156: 1:30 in Los Angeles, before and after clocks are set back."""
    since = dt.datetime(2026, 11, 1, hour, 30, tzinfo=dt.UTC)
    make("interval", target="i", since=since)
    cron = {"every": None, "expression": "*/10 * * * *", "zone": "America/Los_Angeles"}
    make("cron", target="c", since=since, **cron)
    assert schedules.fire_due(now=since + 9 * MINUTE) == 0
    assert schedules.fire_due(now=since + 10 * MINUTE) == 2


def test_after_three_hours_of_stop_each_job_runs_once() -> None:
    """C161, C163: nothing is made up for but the latest turn of each."""
    make("every minute", every=1, target="a")
    make("cron", every=None, expression="*/5 * * * *", target="b")
    make("nightly", every=None, expression="0 1 * * *", target="c")
    schedules.fire_due(now=T0 + 3 * HOUR + 30 * dt.timedelta(seconds=1))
    assert Counter(JobRun.objects.values_list("target", flat=True)) == {"a": 1, "b": 1}
    finish_all()
    assert schedules.fire_due(now=T0 + 3 * HOUR + 31 * dt.timedelta(seconds=1)) == 0


def test_of_three_beats_that_look_at_once_each_due_job_is_asked_for_once() -> None:
    for number in range(6):
        make(f"s{number}", target=f"t{number}")
    gate = threading.Barrier(3)

    def beat() -> None:
        for turn in range(1, 6):
            gate.wait(30)
            schedules.fire_due(now=T0 + 10 * MINUTE * turn)
            gate.wait(30)
            if threading.current_thread().name == "first":
                finish_all()
        connections.close_all()

    threads = [threading.Thread(target=beat, name=name) for name in ("first", "second", "third")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert Counter(JobRun.objects.values_list("target", flat=True)) == {
        f"t{number}": 5 for number in range(6)
    }


def test_no_run_joins_one_of_the_same_job_that_is_not_over(rung: list[int]) -> None:
    make("long", job="long")
    make("quick")
    assert schedules.fire_due(now=T0 + 10 * MINUTE) == 2
    assert schedules.fire_due(now=T0 + 20 * MINUTE) == 0
    assert len(rung) == 2
    skipped = JobRun.objects.get(state=JobRun.State.SKIPPED)
    assert (skipped.job, skipped.error) == ("long", "The run before it was not over yet.")


def test_a_change_counts_at_once_however_it_was_made() -> None:
    """C159"""
    task = make()
    due = T0 + 10 * MINUTE
    PeriodicTask.objects.filter(pk=task.pk).update(enabled=False)
    assert schedules.fire_due(now=due) == 0
    PeriodicTask.objects.filter(pk=task.pk).update(enabled=True)
    longer, _ = IntervalSchedule.objects.get_or_create(every=3, period="hours")
    task.refresh_from_db()
    task.interval, task.last_run_at = longer, T0
    task.save()
    assert schedules.fire_due(now=due) == 0
    assert schedules.fire_due(now=T0 + 3 * HOUR) == 1
    finish_all()
    task.delete()
    assert schedules.fire_due(now=T0 + 30 * HOUR) == 0


def test_what_is_new_changed_or_switched_on_does_not_make_up_for_the_past() -> None:
    yesterday = "0 0 * * *"
    task = schedules.save(
        actor=audit.SYSTEM, asked=Asked(name="n", job="clean-up", expression=yesterday)
    )
    assert schedules.fire_due() == 0
    PeriodicTask.objects.filter(pk=task.pk).update(last_run_at=T0 - 48 * HOUR, enabled=False)
    schedules.switch(actor=audit.SYSTEM, task=task, is_on=True)
    assert schedules.fire_due() == 0


def test_a_clock_that_was_ahead_does_not_silence_a_schedule() -> None:
    make(since=T0 + 1000 * HOUR)
    assert schedules.fire_due(now=T0) == 0
    assert schedules.fire_due(now=T0 + 10 * MINUTE) == 1


def test_rows_that_nobody_can_run_are_switched_off_at_the_start_and_others_left_alone() -> None:
    every, _ = IntervalSchedule.objects.get_or_create(every=1, period="hours")
    for name, task, kwargs in (
        ("renamed", schedules.TASK, {"job": "was-renamed"}),
        ("old", "odradek.sweep", {}),
        ("spoilt", schedules.TASK, {}),
        ("foreign", "somebody.else", {}),
    ):
        PeriodicTask.objects.create(name=name, task=task, kwargs=json.dumps(kwargs), interval=every)
    schedules.make_missing()
    on = set(PeriodicTask.objects.filter(enabled=True).values_list("name", flat=True))
    assert on == {"foreign", *job_table.SCHEDULES}
    schedules.make_missing()
    assert PeriodicTask.objects.count() == 4 + len(job_table.SCHEDULES)


def test_one_that_comes_with_odradek_stays_off_and_cannot_be_deleted() -> None:
    schedules.make_missing()
    name = next(iter(job_table.SCHEDULES))
    task = PeriodicTask.objects.get(name=name)
    schedules.switch(actor=audit.SYSTEM, task=task, is_on=False)
    schedules.make_missing()
    assert not PeriodicTask.objects.get(name=name).enabled
    with pytest.raises(ScheduleRefused, match="comes with Odradek"):
        schedules.delete(actor=audit.SYSTEM, task=task)
    renamed = Asked(name="mine", job=schedules.call_of(task).job, every=1, period="hours")
    with pytest.raises(ScheduleRefused, match="keeps its name"):
        schedules.save(actor=audit.SYSTEM, asked=renamed, task=task)


def test_run_now_leaves_the_turn_as_it_is_and_is_audited() -> None:
    task = make(target="x", parameters={"topics": ["a"]})
    run = schedules.run_now(actor=audit.SYSTEM, task=task)
    assert (run.trigger, run.schedule, run.parameters) == ("person", task, {"topics": ["a"]})
    with pytest.raises(jobs.AlreadyQueued):
        schedules.run_now(actor=audit.SYSTEM, task=task)
    finish_all()
    assert schedules.fire_due(now=T0 + 10 * MINUTE) == 1
    assert [entry.failure for entry in AuditEntry.objects.filter(action="job.run")] == [
        "clean-up of x is queued or running already",
        "",
    ]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"every": 9, "period": "seconds"}, "Not more often than every 10 seconds"),
        ({"every": 0}, "longer than nothing"),
        ({"every": None, "expression": "x"}, "Five fields"),
        ({"every": None, "expression": "0 0 * * *", "zone": "Mars/Base"}, "no time zone"),
        ({"job": "export"}, "no schedules of the job"),
        ({"job": "nothing"}, "no schedules of the job"),
    ],
)
def test_what_makes_no_sense_is_refused(asked: dict[str, object], words: str) -> None:
    with pytest.raises(ScheduleRefused, match=words):
        make(**asked)  # type: ignore[arg-type]
    assert PeriodicTask.objects.count() == 0


def test_two_of_one_name_are_refused_and_times_that_nobody_uses_are_forgotten() -> None:
    task = make("a")
    make("b")
    with pytest.raises(ScheduleRefused, match="of this name"):
        make("b")
    asked = Asked(name="a", job="clean-up", expression="5 4 * * *", zone="Asia/Kathmandu")
    schedules.save(actor=audit.SYSTEM, asked=asked, task=task)
    schedules.delete(actor=audit.SYSTEM, task=PeriodicTask.objects.get(name="b"))
    assert not IntervalSchedule.objects.exists()
    after = AuditEntry.objects.filter(action="schedule.change").get().after
    assert (after["cron"], after["zone"]) == ("5 4 * * *", "Asia/Kathmandu")
