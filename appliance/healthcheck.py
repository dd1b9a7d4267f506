"""``python -m appliance.healthcheck``: does what is served on this data directory answer?

For a container's engine, which asks every few seconds: it imports next to nothing, and asks by the addresses that
``odradek serve`` wrote into its lock. A cluster that lacks replicas is no reason to start this node anew, so only
what runs here counts: the broker by ApiVersions, the dashboard by ``/healthz``.
"""

from __future__ import annotations

import http.client
import os
import sys
from pathlib import Path

from appliance.supervisor.serve_lock import FILE_NAME, is_locked, read_holder
from dashboard.probe import ask_api_versions, reachable, split_address

TIMEOUT_S = 4.0


def problem(data_directory: Path) -> str | None:
    """What does not answer, in a line; None when all does."""
    lock = data_directory / FILE_NAME
    if not is_locked(lock):
        return f"nothing is served from {data_directory}"
    served = read_holder(lock)
    for name, ask in (("kafka", _ask_broker), ("web", _ask_web)):
        if (address := served.get(name)) is None:
            continue
        try:
            ask(reachable(*split_address(address)))
        except (OSError, http.client.HTTPException) as error:
            return f"{name} at {address}: {error}"
    return None


def _ask_broker(address: tuple[str, int]) -> None:
    ask_api_versions(address, TIMEOUT_S)


def _ask_web(address: tuple[str, int]) -> None:
    connection = http.client.HTTPConnection(*address, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/healthz")
        status = connection.getresponse().status
    finally:
        connection.close()
    if status != http.HTTPStatus.OK:
        raise OSError(f"answers {status}")


def main() -> int:
    found = problem(Path(os.environ.get("ODRADEK_DATA") or "data"))
    sys.stdout.write(f"{found or 'all answer'}\n")
    return 0 if found is None else 1


if __name__ == "__main__":
    sys.exit(main())
