"""What ``odradek serve`` prints on its output: where Kafka and the dashboard are, and how to get in.

The made password of the first admin is printed to a terminal alone; elsewhere, and in the log, only
its file is named. A dashboard that is there before the broker is announced at once: it shows how far
the broker's recovery is.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TextIO

from appliance import VERSION
from appliance.config import ApplianceConfig
from dashboard.probe import join_address, reachable

PASSWORD_FILE = "initial-admin-password"  # noqa: S105 - its name
_WIDTH = 11


class Announcement:
    def __init__(
        self,
        output: TextIO,
        config: ApplianceConfig,
        data_directory: Path,
        *,
        kafka: tuple[str, int] | None,
        web: tuple[str, int] | None,
    ) -> None:
        self._output = output
        self._config = config
        self._data_directory = data_directory
        self._kafka = kafka
        self._web = web
        self._waits_for_broker = kafka is not None

    def program_ready(self, name: str) -> None:
        if name == "broker":
            self._waits_for_broker = False
        if name == "web" and self._waits_for_broker:
            lines = [
                f"Odradek {VERSION} is starting; the dashboard shows how far the broker is.",
                *self._dashboard(),
            ]
            self._say(lines)

    def all_ready(self) -> None:
        lines = [f"Odradek {VERSION} is ready."]
        if self._kafka is not None:
            lines.append(_line("Kafka", _shown(self._config.advertised, self._kafka)))
        lines += self._dashboard()
        lines.append(_line("Data", str(self._data_directory)))
        lines.append("Ctrl-C stops it.")
        self._say(lines)

    def _dashboard(self) -> list[str]:
        if self._web is None:
            return []
        config = self._config
        if config.public_url:
            lines = [_line("Dashboard", config.public_url)]
        else:
            shown = _shown(None, self._web, config.root_path + "/" if config.root_path else "")
            lines = [_line("Dashboard", f"http://{shown}")]
        path = self._data_directory / PASSWORD_FILE
        with contextlib.suppress(OSError, UnicodeDecodeError):
            password = path.read_text().strip()
            if self._output.isatty():
                lines.append(_line("Sign in", f"{config.admin_name}, password {password}"))
            else:
                lines.append(_line("Sign in", f"{config.admin_name}, password in {path}"))
        return lines

    def _say(self, lines: list[str]) -> None:
        """A terminal that went away must not take the broker with it."""
        with contextlib.suppress(OSError):
            self._output.write("\n".join(lines) + "\n")
            self._output.flush()


def _line(label: str, text: str) -> str:
    return f"  {label:<{_WIDTH - 2}}  {text}"


def _shown(told: str | None, address: tuple[str, int], path: str = "") -> str:
    """What to type on this machine; who listens everywhere is asked at the loopback address."""
    if told is not None:
        return told
    host, port = reachable(*address)
    shown = join_address(host, port) + path
    return shown if host == address[0] else f"{shown} (every address of this machine listens)"
