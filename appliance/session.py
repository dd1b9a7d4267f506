"""What one invocation knows: which cluster, how to write, whom to ask.

Options may stand before or after the command; the later one wins. The cluster's address comes
from ``-b``, then ``ODRADEK_BOOTSTRAP``, then the profile, then ``--command-config``, then
127.0.0.1:9092.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from appliance.failure import EXIT_FAILED, EXIT_OK, EXIT_USAGE, CommandError

if TYPE_CHECKING:
    from appliance.output import Report
    from dashboard.gateway import Gateway

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


@dataclass(slots=True)
class Session:
    bootstrap: str | None = None
    profile: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    command_config: str | None = None
    format: str = "text"
    is_quiet: bool = False
    is_verbose: bool = False
    timeout_ms: int = 10_000
    no_color: bool = False
    assume_yes: bool = False
    _gateway: Gateway | None = None

    @property
    def timeout_s(self) -> float:
        return self.timeout_ms / 1000

    def remember(self, name: str, value: Any) -> None:
        """Take a global option; -X adds up, everything else replaces."""
        if name == "properties":
            self.properties |= dict(value)
        else:
            setattr(self, name, value)

    # The cluster

    def gateway(self) -> Gateway:
        """The cluster, known to answer. Imports the client library: only when it is needed."""
        if self._gateway is None:
            from dashboard.cluster import KafkaFailure
            from dashboard.gateway import Gateway

            bootstrap, properties = self.resolve_cluster()
            gateway = Gateway(
                bootstrap, properties, timeout_s=self.timeout_s, is_verbose=self.is_verbose
            )
            try:
                gateway.check()
            except KafkaFailure as failure:
                raise CommandError.of(failure, bootstrap) from None
            self._gateway = gateway
        return self._gateway

    @property
    def names_cluster(self) -> bool:
        """Whether the command line, or what it names, says which cluster is meant."""
        return bool(
            self.bootstrap
            or self.profile
            or self.command_config
            or "bootstrap.servers" in self.properties
        )

    def forget_gateway(self) -> None:
        """The next question connects anew."""
        self._gateway = None

    def resolve_cluster(self) -> tuple[str, dict[str, str]]:
        """Bootstrap servers and client properties from everything that was given."""
        from appliance import client_config

        configured: dict[str, str] = {}
        if self.command_config is not None:
            configured |= client_config.read_command_config(Path(self.command_config))
        if self.profile is not None:
            configured |= client_config.read_profile(self.profile)
        configured |= self.properties
        stored = configured.pop("bootstrap.servers", None)
        return self.bootstrap or stored or DEFAULT_BOOTSTRAP, configured

    # Words

    def color_for(self, stream: Any) -> bool:
        """Colour only on a terminal, and never against NO_COLOR."""
        if self.no_color or os.environ.get("NO_COLOR"):
            return False
        return bool(stream.isatty())

    def note(self, text: str) -> None:
        """Something beside the data: on stderr, silenced by -q."""
        if not self.is_quiet:
            print(text, file=sys.stderr, flush=True)  # noqa: T201 - the only place for notes

    def emit(self, report: Report) -> int:
        """Write a report; its data to stdout, its errors to stderr. Returns the exit code."""
        sys.stdout.write(report.render(self.format, color=self.color_for(sys.stdout)))
        sys.stdout.flush()
        for error in report.errors:
            self.complain(error.as_line(), error.hint)
        return EXIT_FAILED if report.errors else EXIT_OK

    def complain(self, message: str, hint: str | None) -> None:
        """An error on stderr, which -q does not silence, and what to do next."""
        red, plain = ("\x1b[31m", "\x1b[0m") if self.color_for(sys.stderr) else ("", "")
        lines = [f"{red}error:{plain} {message}"]
        if hint is not None:
            lines.append(f"  {hint}")
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()

    def confirm(self, what: str, word: str) -> None:
        """Have a destructive step (``delete topic x``) confirmed by typing ``word``, or by --yes."""
        if self.assume_yes:
            return
        if not sys.stdin.isatty():
            raise CommandError(
                f"to {what} needs a confirmation, and there is no terminal to ask on",
                hint="Add --yes if you mean it.",
                code="NOT_CONFIRMED",
                exit_code=EXIT_USAGE,
            )
        sys.stderr.write(f"About to {what}. Type {word} to confirm: ")
        sys.stderr.flush()
        if sys.stdin.readline().strip() != word:
            raise CommandError("not confirmed, nothing was changed", code="NOT_CONFIRMED")

    def confirm_several(self, verb: str, noun: str, names: Sequence[str]) -> None:
        """The name itself for one thing, the count for several."""
        if len(names) == 1:
            self.confirm(f"{verb} {noun} {names[0]}", names[0])
            return
        listed = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        self.confirm(f"{verb} {len(names)} {noun}s ({listed})", str(len(names)))
