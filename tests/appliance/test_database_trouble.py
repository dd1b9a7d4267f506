"""A database that goes away and comes back, is locked, or is no database: pages and lines say so."""

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.appliance.test_postgres import ENQUEUE
from tests.support import postgres, processes
from tests.support.web import REPOSITORY, WebProcess

JOB = """
import sys
from dashboard.models import JobRun
print(JobRun.objects.get(pk=int(sys.argv[1])).state)
"""


def run_module(web: WebProcess, module: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module],
        cwd=REPOSITORY, env=web.environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.mark.timeout(300)
def test_pages_say_that_it_is_away_and_everything_goes_on_when_it_is_back(tmp_path: Path) -> None:
    with postgres.server(tmp_path) as database:
        web = WebProcess(tmp_path / "web", "127.0.0.1:1", {"database_url": database.url})
        with web, web.client() as client:
            worker = subprocess.Popen(
                [sys.executable, "-m", "appliance.worker"],
                cwd=REPOSITORY, env=web.environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            try:
                process = web.process
                assert process is not None
                run = web.run_python(ENQUEUE).split()[-1]
                processes.wait_until(
                    lambda: web.run_python(JOB, run).strip() == "ok", 120, "a job", every=1
                )
                database.stop()

                page = client.get("users/")
                assert (page.status_code, page.headers["retry-after"]) == (503, "5")
                assert "The database does not answer" in page.text
                part = client.get("alerts/open/", headers={"HX-Request": "true"})
                assert part.status_code == 503
                assert "<html" not in part.text
                api = client.get("api/v1/me")
                assert (api.status_code, api.json()["error"]["code"]) == (503, "unavailable")
                assert client.get("healthz").status_code == 200

                database.start()
                assert client.get("users/").status_code == 200
                run = web.run_python(ENQUEUE).split()[-1]
                processes.wait_until(
                    lambda: web.run_python(JOB, run).strip() == "ok", 120, "a job", every=1
                )
                assert process.poll() is None
                assert worker.poll() is None
            finally:
                processes.end(worker, signal.SIGTERM, 40)


@pytest.mark.parametrize("module", ["appliance.web", "appliance.worker"])
def test_a_file_that_is_no_database_costs_one_line(module: str, tmp_path: Path) -> None:
    web = WebProcess(tmp_path, "127.0.0.1:1")
    web.data.mkdir()
    (web.data / "odradek.db").write_bytes(b"not a database at all, " * 1000)
    done = run_module(web, module)
    assert done.returncode == 1
    assert done.stderr == "the database cannot be used: file is not a database\n"


@pytest.mark.slow
def test_a_database_that_somebody_else_holds_costs_one_line(tmp_path: Path) -> None:
    web = WebProcess(tmp_path, "127.0.0.1:1")
    web.data.mkdir()
    holder = sqlite3.connect(web.data / "odradek.db", isolation_level=None)
    holder.execute("CREATE TABLE there (x)")
    holder.execute("BEGIN EXCLUSIVE")
    done = run_module(web, "appliance.web")
    holder.close()
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "the database cannot be used: database is locked"
    assert "Traceback" not in done.stderr
