"""The database in PostgreSQL: tables, first admin, jobs, schedules, commands, one node of two."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import judge, postgres, processes
from tests.support.web import REPOSITORY, WebProcess, post

ENQUEUE = """
from dashboard.services import audit, jobs
from appliance import celery
print(jobs.enqueue(job="clean-up", target="", parameters={}, trigger="person", actor=audit.SYSTEM).pk)
"""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with postgres.running(tmp_path_factory.mktemp("postgres")) as url:
        yield url


def worker(web: WebProcess, data: Path) -> subprocess.Popen[bytes]:
    with (data / "worker.txt").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "appliance.worker"],
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**web.environment, "ODRADEK_DATA": str(data)},
        )


def test_pages_jobs_and_commands_work_on_it_and_a_second_node_needs_a_queue(
    database: str, tmp_path: Path
) -> None:
    web = WebProcess(tmp_path, "127.0.0.1:1", {"database_url": database})
    with web, web.client() as client:
        assert not (web.data / "odradek.db").exists()
        assert (web.data / "initial-admin-password").exists()
        assert client.get("users/").status_code == 200
        assert post(client, "account/preferences/", {"theme": "dark"}).status_code == 200
        first = worker(web, web.data)
        other = tmp_path / "other"
        other.mkdir()
        try:
            run = int(web.run_python(ENQUEUE).split()[-1])
            state = (
                "from dashboard.models import JobRun, Lease\n"
                f"print(JobRun.objects.get(pk={run}).state, Lease.objects.filter(name='scheduler').count())"
            )
            processes.wait_until(
                lambda: web.run_python(state).split() == ["ok", "1"], 120, "the job", every=1
            )
            second = worker(web, other)
            assert second.wait(120) == 1
            words = "more than one node with web or worker needs DATABASE_URL and a Celery URL"
            assert words in (other / "worker.txt").read_text()
        finally:
            assert processes.end(first, signal.SIGTERM, 40) == 0
    listed = subprocess.run(
        [sys.executable, "-m", "appliance", "user", "list"],
        cwd=REPOSITORY, env=web.environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert listed.returncode == 0, listed.stderr
    assert "ada" in listed.stdout


def test_a_database_that_is_not_there_costs_one_line(tmp_path: Path) -> None:
    web = WebProcess(
        tmp_path,
        "127.0.0.1:1",
        {"database_url": f"postgres://x@127.0.0.1:{judge.free_port()}/odradek"},
    )
    with pytest.raises(AssertionError):
        web.start()
    said = web.output.read_text()
    assert "the database cannot be used: connection failed" in said
    assert "Traceback" not in said
