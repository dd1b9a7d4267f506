import os
from pathlib import Path

from appliance.healthcheck import problem
from appliance.supervisor.serve_lock import ServeLock
from tests.support import judge
from tests.support.odradek import OdradekBroker


def test_a_directory_that_nobody_serves_is_told(tmp_path: Path) -> None:
    assert problem(tmp_path) == f"nothing is served from {tmp_path}"


def test_what_answers_is_well_and_what_does_not_is_named(
    tmp_path: Path, odradek_broker: OdradekBroker
) -> None:
    about = {"pid": os.getpid(), "kafka": odradek_broker.bootstrap, "web": None}
    lock = ServeLock.take(tmp_path, about)
    try:
        assert problem(tmp_path) is None
        nobody = f"127.0.0.1:{judge.free_port()}"
        lock.describe(about | {"web": nobody})
        told = problem(tmp_path)
        assert told is not None
        assert told.startswith(f"web at {nobody}: ")
        # A Kafka listener is no dashboard.
        lock.describe(about | {"web": odradek_broker.bootstrap})
        assert problem(tmp_path) is not None
    finally:
        lock.release()
