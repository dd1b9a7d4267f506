"""What ``odradek doctor`` looks at of the processes beside the broker: web, worker, beat.

Where a serve runs on the directory, its lock's file tells what it runs; else only the web's port is
looked at.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable
from pathlib import Path
from typing import Final

from appliance import child, database_check
from appliance.checks import DIAL_TIMEOUT_S, Check, Verdict
from appliance.supervisor import serve_lock
from broker.clock import SystemClock
from dashboard.probe import join_address, reachable, split_address

DEFAULT_WEB: Final = "127.0.0.1:8080"
STARTING_S: Final = 60.0
LOG_HINT = (
    "What `odradek serve` writes says why, after the name of the process (`journalctl -u odradek`); to start it"
    " anew: `systemctl restart odradek`, or Ctrl-C and `odradek serve`."
)
BindProblem = Callable[[tuple[str, int]], OSError | None]


def check_processes(
    data_directory: Path, web: str, database_url: str, bind_problem: BindProblem
) -> list[Check]:
    holder = serve_lock.holder_on(data_directory)
    if holder is None:
        return [check_web_port(split_address(web), bind_problem)]
    programs = holder.get("programs", [])
    found = []
    if "web" in programs:
        found.append(check_web(split_address(str(holder["web"]))))
    if "worker" in programs:
        age_s = (SystemClock().wall_ms() - int(holder.get("started_ms", 0))) / 1000
        found += [check_worker(data_directory), check_beat(data_directory, database_url, age_s)]
    return found


def check_web_port(address: tuple[str, int], bind_problem: BindProblem) -> Check:
    """For a serve to come: is the dashboard's port free?"""
    host, port = address
    problem = bind_problem(address)
    if problem is None:
        return Check("web", Verdict.OK, f"port {port} is free on {host}")
    return Check(
        "web",
        Verdict.FAIL,
        f"port {port} cannot be listened on at {host}: {problem.strerror}",
        f"Something else has it (`ss -ltnp sport = :{port}` tells who), or the address is not this machine's:"
        " --web HOST:PORT.",
    )


def check_web(address: tuple[str, int]) -> Check:
    told = join_address(*address)
    connection = http.client.HTTPConnection(*reachable(*address), timeout=DIAL_TIMEOUT_S)
    try:
        connection.request("GET", "/healthz")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return Check("web", Verdict.FAIL, f"{told} does not answer: {error}", LOG_HINT)
    finally:
        connection.close()
    if status != http.HTTPStatus.OK:
        return Check("web", Verdict.FAIL, f"{told} answers with {status}", LOG_HINT)
    return Check("web", Verdict.OK, f"the dashboard answers on {told}")


def check_worker(data_directory: Path) -> Check:
    if child.is_ready(data_directory, "worker"):
        return Check("worker", Verdict.OK, "ready for jobs")
    return Check("worker", Verdict.FAIL, "does not run, or is not ready", LOG_HINT)


def check_beat(data_directory: Path, database_url: str, serve_age_s: float) -> Check:
    """Some worker watches the schedules: the lease in the database.

    A worker that hangs is not restarted, and nothing but its lease tells: it ends then.
    """
    try:
        holder = database_check.scheduler(data_directory, database_url)
    except database_check.Unreachable as error:
        return Check("beat", Verdict.INFO, f"not known, as the database cannot be asked: {error}")
    if holder is None and serve_age_s < STARTING_S:
        return Check("beat", Verdict.INFO, "no worker watches the schedules yet")
    if holder is None:
        return Check("beat", Verdict.FAIL, "no worker watches the schedules", LOG_HINT)
    return Check("beat", Verdict.OK, f"schedules are watched by {holder}")
