"""Beats: of three, one watches the schedules; when it ends, another does."""

import datetime as dt
from collections.abc import Callable, Iterator

import pytest
from django.utils import timezone

from appliance import scheduling, worker
from appliance.scheduling import Beat
from dashboard import leases
from dashboard.models import JobRun
from dashboard.services import audit, jobs, schedules
from dashboard.services.schedules import Asked
from tests.support import processes

pytestmark = pytest.mark.django_db(transaction=True)
NAMES = ("a", "b", "c")


@pytest.fixture
def beats(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Beat]]:
    monkeypatch.setattr(jobs, "ring", lambda run: None)
    monkeypatch.setattr(worker, "hold_transport", lambda: None)
    monkeypatch.setattr(worker, "give_back", lambda: None)
    for name in ("LOOK_S", "STANDBY_S"):
        monkeypatch.setattr(scheduling, name, 0.02)
    found = {name: Beat(name) for name in NAMES}
    yield found
    for beat in found.values():
        beat.stop()


def due(target: str) -> None:
    """A schedule whose time came an hour ago."""
    asked = Asked(name=target, job="clean-up", target=target, every=1, period="days")
    task = schedules.save(actor=audit.SYSTEM, asked=asked)
    long_ago = timezone.now() - dt.timedelta(days=1, hours=1)
    type(task).objects.filter(pk=task.pk).update(last_run_at=long_ago)


def asked_for(target: str) -> Callable[[], bool]:
    return lambda: JobRun.objects.filter(target=target).exists()


def test_of_three_beats_one_watches_and_when_it_ends_another_does(beats: dict[str, Beat]) -> None:
    for beat in beats.values():
        beat.start()
    due("first")
    processes.wait_until(asked_for("first"), 30, "the first")
    holder = leases.holder_of(leases.SCHEDULER)
    assert holder in NAMES
    beats[holder].stop()
    due("second")
    processes.wait_until(asked_for("second"), 30, "the second")
    assert leases.holder_of(leases.SCHEDULER) in set(NAMES) - {holder}
    runs = JobRun.objects.filter(target__in=["first", "second"])
    assert sorted(runs.values_list("target", flat=True)) == ["first", "second"]


def test_a_beat_goes_on_when_what_it_looked_at_failed(
    beats: dict[str, Beat], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "RETRY_S", 0.02)
    real, failures = schedules.fire_due, iter([OSError("no room"), ValueError("spoilt")])

    def fire_due() -> int:
        for failure in failures:
            raise failure
        return real()

    monkeypatch.setattr(schedules, "fire_due", fire_due)
    due("later")
    beats["a"].start()
    processes.wait_until(asked_for("later"), 30, "what was due")
