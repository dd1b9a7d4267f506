"""``odradek serve``: takes the data directory, starts the programs, stays until told to stop.

Everything that can be known beforehand (the configuration, the directory, its lock, the ports) is
checked before anything is started, so that a mistake costs one line and leaves nothing behind.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from appliance.failure import EXIT_FAILED, EXIT_OK, EXIT_USAGE, SEVERAL_NODES, CommandError
from appliance.options import ADDRESS, KEY_VALUE, command, data_option, pass_session
from appliance.session import Session
from appliance.supervisor import preflight, programs
from appliance.supervisor.announcement import Announcement
from appliance.supervisor.log_stream import LogStream
from appliance.supervisor.restart_record import RestartRecord
from appliance.supervisor.run import Supervisor
from broker.clock import SystemClock
from dashboard.probe import is_loopback, join_address, reachable, split_address

DEFAULT_LISTEN = "127.0.0.1:9092"
METRICS_SETTING = "odradek.metrics.listen"
METRICS_REQUIRED_SETTING = "odradek.metrics.required"
RETENTION_SETTING = "odradek.retention.scheduled"
FLAGS = ("data", "listen", "advertised", "web", "root_path")
"""Options that are keys of the configuration too."""


class ProgramListType(click.ParamType[tuple[str, ...]]):
    """``broker`` or ``web,worker``; the option may be repeated too."""

    name = "programs"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(piece.strip() for piece in value.split(","))
        for name in names:
            if name == "beat":
                self.fail("beat is a part of the worker: --only worker", param, ctx)
            if name not in programs.NAMES:
                self.fail(f"{name!r} is none of {', '.join(programs.NAMES)}", param, ctx)
        return names


@command("serve")
@data_option("Where everything is kept.")
@click.option(
    "--listen",
    type=ADDRESS,
    envvar="ODRADEK_LISTEN",
    show_envvar=True,
    show_default=DEFAULT_LISTEN,
    metavar="HOST:PORT",
    help="Where Kafka clients connect.",
)
@click.option(
    "--advertised",
    type=ADDRESS,
    envvar="ODRADEK_ADVERTISED",
    show_envvar=True,
    metavar="HOST:PORT",
    help="What clients are told to connect to, when that is not where they came in.",
)
@click.option(
    "--web",
    type=ADDRESS,
    envvar="ODRADEK_WEB",
    show_envvar=True,
    show_default="127.0.0.1:8080",
    metavar="HOST:PORT",
    help="Where browsers connect.",
)
@click.option(
    "--root-path",
    envvar="ODRADEK_ROOT_PATH",
    show_envvar=True,
    metavar="/PATH",
    help="Path under which a reverse proxy shows the dashboard.",
)
@click.option(
    "--only",
    type=ProgramListType(),
    multiple=True,
    metavar="broker|web|worker",
    help="Run only these; may be repeated. Beat is a part of the worker.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="The configuration in TOML (`odradek config show` lists its keys); or broker settings"
    " alone, as Java properties.",
)
@click.option(
    "--property",
    "properties",
    type=KEY_VALUE,
    multiple=True,
    metavar="K=V",
    help="One broker setting; may be repeated, wins over the configuration.",
)
@pass_session
def serve(
    session: Session,
    /,
    only: tuple[tuple[str, ...], ...],
    config: Path | None,
    properties: tuple[tuple[str, str], ...],
    **options: Any,
) -> int:
    """Start Odradek and keep it running: broker, dashboard, worker.

    Kafka's and the dashboard's address are printed once all answer; log lines go to stderr, each
    with the name of its process. Ctrl-C or SIGTERM stops everything in order. Every key of the
    configuration is also read from the environment, as ODRADEK_KEY.
    """
    chosen = {name for names in only for name in names} or set(programs.NAMES)
    given = click.get_current_context().get_parameter_source
    flags = {name: options[name] for name in FLAGS if given(name) is _COMMAND_LINE}
    if properties:
        flags["broker"] = dict(properties)
    return _Serving(session, chosen, flags, config).run()


_COMMAND_LINE = click.core.ParameterSource.COMMANDLINE


class _Serving:
    """One call of ``odradek serve``."""

    def __init__(
        self, session: Session, chosen: set[str], flags: Mapping[str, Any], file: Path | None
    ) -> None:
        from appliance.config import ConfigError, load_for_serve

        self._session = session
        self._chosen = chosen
        try:
            self._loaded = load_for_serve(flags, file)
        except ConfigError as error:
            raise CommandError(str(error), code="CONFIG", exit_code=EXIT_USAGE) from None
        self._config = self._loaded.values
        self._data = self._config.data.absolute()
        self._broker = dict(self._config.broker)
        self._kafka, self._listen = self._listener()
        self._web = split_address(self._config.web)

    def run(self) -> int:
        self._refuse_half_a_node()
        preflight.refuse_taken(self._data)
        preflight.await_predecessors(self._data, self._session.note)
        if "broker" in self._chosen:
            self._refuse_open_listeners()
            preflight.refuse_taken_port(self._kafka, "--listen ")
            self._settle_metrics()
            if "worker" in self._chosen:
                self._broker.setdefault(RETENTION_SETTING, "true")
        if "web" in self._chosen:
            preflight.refuse_taken_port(self._web, "--web ")
        lock = preflight.take(self._data, self._about(), self._session.note)
        try:
            return self._supervise()
        finally:
            lock.release()

    def _settle_metrics(self) -> None:
        """A port that nobody chose gives way to whoever has it: known only when the broker, each
        time that it starts, has tried."""
        told = self._config.broker_metrics
        if not told or METRICS_SETTING in self._broker:
            return
        if self._loaded.sources["broker_metrics"] != "default":
            preflight.refuse_taken_port(split_address(told), "ODRADEK_BROKER_METRICS=")
        else:
            self._broker.setdefault(METRICS_REQUIRED_SETTING, "false")
        self._broker[METRICS_SETTING] = told

    def _about(self) -> dict[str, Any]:
        """What the lock's file tells others."""
        return {
            "pid": os.getpid(),
            "started_ms": SystemClock().wall_ms(),
            "kafka": join_address(*self._kafka) if "broker" in self._chosen else None,
            "web": join_address(*self._web) if "web" in self._chosen else None,
            "programs": [name for name in programs.NAMES if name in self._chosen],
        }

    def _refuse_half_a_node(self) -> None:
        """Web without worker, or the other way round: the other one runs on another node."""
        if len(self._chosen & {"web", "worker"}) != 1:
            return
        config = self._config
        if not (config.database_url.get_secret_value() and config.celery_url.get_secret_value()):
            raise CommandError(
                SEVERAL_NODES,
                hint="A single node runs both: --only web,worker.",
                code="SEVERAL_NODES",
                exit_code=EXIT_USAGE,
            )

    def _refuse_open_listeners(self) -> None:
        """Whoever reaches a listener may read, write and delete: where that was not said to be meant."""
        if self._config.open:
            return
        listeners = [self._kafka]
        if self._listen is None:
            listeners = programs.configured_listeners(self._broker_settings())
        for host, port in listeners:
            if not is_loopback(host):
                raise CommandError(
                    f"everybody who reaches {join_address(host, port)} could read and change all topics:"
                    " nobody has to sign in there",
                    hint="ODRADEK_OPEN=yes if only those reach it who may; otherwise"
                    " ODRADEK_LISTEN=127.0.0.1:9092.",
                    code="OPEN_LISTENER",
                    exit_code=EXIT_USAGE,
                )

    def _listener(self) -> tuple[tuple[str, int], str | None]:
        """(address to bind, --listen for the broker); ``listen`` wins over broker settings."""
        config = self._config
        listen = config.listen
        if listen is None:
            try:
                configured = programs.configured_listener(self._broker_settings())
            except ValueError:
                raise CommandError("listeners: write it as PLAINTEXT://HOST:PORT") from None
            if configured is not None:
                return configured, None
            listen = DEFAULT_LISTEN
        return split_address(listen), listen

    def _broker_settings(self) -> dict[str, str]:
        from appliance.client_config import parse_properties

        path = self._config.broker_config
        try:
            settings = parse_properties(path.read_text()) if path is not None else {}
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{path}: {error}", exit_code=EXIT_USAGE) from None
        return settings | self._config.broker

    def _programs(self) -> Sequence[programs.Program]:
        config = self._config
        environment = self._loaded.as_environment() | {
            "ODRADEK_LISTEN": join_address(*self._kafka),
            "ODRADEK_DATA": str(self._data),
        }
        options = programs.BrokerOptions(
            self._data,
            self._listen,
            config.advertised,
            config.broker_config,
            tuple(self._broker.items()),
        )
        web = reachable(*self._web)
        every = {
            "broker": programs.broker_program(options, reachable(*self._kafka)),
            "worker": programs.worker_program(self._data, environment),
            "web": programs.web_program(web, config.root_path, environment),
        }
        return [every[name] for name in programs.NAMES if name in self._chosen]

    def _supervise(self) -> int:
        announcement = Announcement(
            sys.stdout,
            self._config,
            self._data,
            kafka=self._kafka if "broker" in self._chosen else None,
            web=self._web if "web" in self._chosen else None,
        )
        log = LogStream(sys.stderr.fileno())
        chosen = self._programs()
        clock = SystemClock()
        failure = Supervisor(
            chosen,
            clock,
            log.write_line,
            announcement.all_ready,
            announcement.program_ready,
            RestartRecord(self._data, [program.name for program in chosen], clock).note,
        ).run()
        if failure is not None:
            self._session.complain(failure, "What it said stands above.")
            return EXIT_FAILED
        return EXIT_OK
