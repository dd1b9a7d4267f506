"""Celery's tasks, all of them; each only calls what does the work."""

from __future__ import annotations

from appliance import worker
from appliance.celery import app
from dashboard.services import jobs


@app.task(name=jobs.RUN_TASK)  # type: ignore[untyped-decorator]  # celery is untyped
def run(run_id: int) -> None:
    """The bell of a run: take it, if nobody has."""
    worker.runner().perform(run_id)
