"""The whole run: its random order, in which a browser comes last, parts of the long tests, failures at once.

ODRADEK_PART="1/5" keeps one fifth of the slow tests, so that a run of bounded time sees them all in
turn.
"""

import os
import zlib
from pathlib import Path

import pytest

from tests.support.fixtures import shared_apache

# The one of a process: a fixture that several conftests take is one in each of them, and an Apache Kafka that
# does nothing takes a tenth of a core.
__all__ = ["shared_apache"]

# A run starts hundreds of processes, and compiling what each imports takes longer than all else it
# does at its start. Where bytecode must not lie beside the sources it is kept in one place of its own.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    bytecode = Path(__file__).resolve().parents[1] / ".cache" / "bytecode"
    os.environ.setdefault("PYTHONPYCACHEPREFIX", str(bytecode))


#: What starts too much of its own to be started in two processes.
TOGETHER = ("tests/spark/",)

#: Last lines of a failure that are shown before the summary.
SHOWN_AT_ONCE = 25


class _Groups:
    """Names the tests that one of several processes runs together: those of a file, a browser's apart."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            name = item.nodeid.partition("::")[0]
            name = next((part for part in TOGETHER if name.startswith(part)), name)
            item.add_marker(
                pytest.mark.xdist_group(f"{name}:browser" if _needs_browser(item) else name)
            )


class _FailuresAtOnce:
    """Says what failed when it fails: a run that is cut off never comes to its summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if not report.failed or terminal is None:
            return
        terminal.ensure_newline()
        terminal.write_line(
            f"FAILED {report.nodeid} ({report.when}, after {report.duration:.0f} s)"
        )
        for line in report.longreprtext.splitlines()[-SHOWN_AT_ONCE:]:
            terminal.write_line(f"    {line[:300]}")


def pytest_configure(config: pytest.Config) -> None:
    if config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.register(_Groups())
    if os.environ.get("CI") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_FailuresAtOnce(config))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _keep_part(config, items)
    # The browser's library keeps an event loop running in this thread from its first test to the end
    # of the run; asyncio would refuse to run any other test's loop beside it.
    items.sort(key=_needs_browser)


def _needs_browser(item: pytest.Item) -> bool:
    return "chromium" in getattr(item, "fixturenames", ())


def _keep_part(config: pytest.Config, items: list[pytest.Item]) -> None:
    part = os.environ.get("ODRADEK_PART")
    if not part:
        return
    number, count = (int(text) for text in part.split("/"))
    others = [
        item
        for item in items
        if item.get_closest_marker("slow") is not None
        and zlib.crc32(item.nodeid.encode()) % count != number
    ]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in others]
