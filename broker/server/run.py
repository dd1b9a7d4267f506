"""The process around the broker: event loop, signals, limits, the parent's pipe."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import uvloop

from broker import compiled
from broker.server.app import Broker
from broker.server.start_error import StartInterrupted

logger = logging.getLogger(__name__)

PARENT_FD_VARIABLE: Final = "ODRADEK_PARENT_FD"
#: A thread that computes gives the loop its turn after this long (Python's default is 5 ms).
SWITCH_INTERVAL_SECONDS: Final = 0.0005
#: A part failed that the broker cannot do without (``EX_SOFTWARE``); the log says which.
EXIT_FAILED: Final = 70
FAILED_STOP_SECONDS: Final = 20.0
#: Requests leave no cycles behind; the young generation is looked through seldom.
GC_THRESHOLDS: Final = (20_000, 20, 50)


def run(data_directory: Path, settings: Mapping[str, str]) -> int:
    """Serve until told to stop; returns the exit code. Raises StartError, ConfigError or OSError."""
    data_directory.mkdir(parents=True, exist_ok=True)
    _raise_descriptor_limit()
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(data_directory, settings))


async def _serve(data_directory: Path, settings: Mapping[str, str]) -> int:
    loop = asyncio.get_running_loop()
    broker = Broker(data_directory, settings, loop)
    loop.set_exception_handler(broker.tasks.on_loop_error)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, broker.request_stop)
    _watch_parent(loop, broker)
    try:
        await broker.start()
    except StartInterrupted:
        logger.info("stopping before anything was served")
        await broker.abandon()
        return _exit_code(broker)
    except BaseException:
        await broker.abandon()
        raise
    code = "compiled" if compiled.reason is None else f"interpreted ({compiled.reason})"
    logger.info("the hot path is %s", code)
    for listener in broker.listeners:
        sys.stdout.write(f"ready {listener.endpoint.host}:{listener.port}\n")
    sys.stdout.flush()
    await broker.finish_loading()
    # What was loaded so far lives as long as the process: full collections need not look at it.
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    gc.enable()
    await broker.stop_requested.wait()
    logger.info("stopping")
    if broker.failure is None:
        await broker.stop()
    else:
        await _stop_failed(broker)
    return _exit_code(broker)


def _exit_code(broker: Broker) -> int:
    return 0 if broker.failure is None else EXIT_FAILED


async def _stop_failed(broker: Broker) -> None:
    """In order, so that others lead first, if what has failed lets it: others wait for this process's end."""
    try:
        async with asyncio.timeout(FAILED_STOP_SECONDS):
            await broker.stop()
    except Exception as error:
        logger.critical("and it cannot stop in order", exc_info=error)
        logging.shutdown()
        os._exit(EXIT_FAILED)  # threads may hang, too; the next start recovers


def _watch_parent(loop: asyncio.AbstractEventLoop, broker: Broker) -> None:
    """Stop when the other end of the parent's pipe is closed, however the parent ended."""
    given = os.environ.get(PARENT_FD_VARIABLE)
    if given is None:
        return
    descriptor = int(given)

    def on_readable() -> None:
        try:
            if os.read(descriptor, 4096):
                return  # something was said; only the end counts
        except BlockingIOError:
            return
        loop.remove_reader(descriptor)
        logger.warning("the parent process has gone")
        broker.request_stop()

    os.set_blocking(descriptor, False)
    loop.add_reader(descriptor, on_readable)


def _raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
