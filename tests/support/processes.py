"""Processes that the tests start: readings of their memory and descriptors, and a bounded end."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path


def wait_until(
    condition: Callable[[], bool], seconds: float, what: str, *, every: float = 0.02
) -> None:
    """Poll for something that has no event to wait for; the limit is a safety net, not a bar."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds} s")
        time.sleep(every)


def end(process: subprocess.Popen[bytes], sig: signal.Signals, seconds: float) -> int:
    """Send `sig`, wait, and kill what does not go. Returns the exit status."""
    if process.poll() is None:
        process.send_signal(sig)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


def status_kib(pid: int, field: str) -> int:
    """A `kB` line of /proc/PID/status, such as VmRSS, RssAnon or RssShmem."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0])
    raise KeyError(field)


def available_memory_kib() -> int:
    """What the kernel could give without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1])
    raise AssertionError("no MemAvailable in /proc/meminfo")


def descriptor_count(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def tail(path: Path, count: int = 40) -> str:
    with contextlib.suppress(OSError):
        return "\n".join(path.read_text(errors="replace").splitlines()[-count:])
    return ""
