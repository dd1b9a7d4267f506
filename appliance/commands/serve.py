"""``odradek serve``: takes the data directory, starts the programs, stays until told to stop.

Everything that can be known beforehand (the directory, its lock, the port) is checked before
anything is started, so that a mistake costs one line and leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import click

from appliance import VERSION
from appliance.failure import EXIT_FAILED, EXIT_OK, CommandError
from appliance.options import ADDRESS, KEY_VALUE, command, data_option, pass_session
from appliance.session import Session
from appliance.supervisor.log_stream import LogStream
from appliance.supervisor.programs import (
    BrokerOptions,
    broker_program,
    configured_listener,
    reachable,
)
from appliance.supervisor.run import Supervisor
from appliance.supervisor.serve_lock import (
    FILE_NAME,
    DataDirectoryTaken,
    ServeLock,
    find_broker,
    is_locked,
    read_holder,
)
from broker.clock import SystemClock
from dashboard.probe import join_address, split_address

DEFAULT_LISTEN = "127.0.0.1:9092"
PROGRAMS = ("broker",)
"""What exists so far; the others get their names accepted when they do."""
LATER_PROGRAMS = ("web", "worker", "beat")
PREDECESSOR_TIMEOUT_S = 60


class ProgramListType(click.ParamType[tuple[str, ...]]):
    """``broker`` or ``broker,web``; the option may be repeated too."""

    name = "programs"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(piece.strip() for piece in value.split(","))
        for name in names:
            if name in LATER_PROGRAMS:
                self.fail(f"{name} does not exist yet, only {', '.join(PROGRAMS)} does", param, ctx)
            if name not in PROGRAMS:
                known = ", ".join((*PROGRAMS, *LATER_PROGRAMS))
                self.fail(f"{name!r} is none of {known}", param, ctx)
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
    "--only",
    type=ProgramListType(),
    multiple=True,
    metavar="broker|web|worker|beat",
    help="Run only these; may be repeated. Only broker exists yet.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Broker settings, as Java properties.",
)
@click.option(
    "--property",
    "properties",
    type=KEY_VALUE,
    multiple=True,
    metavar="K=V",
    help="One broker setting; may be repeated, wins over --config.",
)
@pass_session
def serve(
    session: Session,
    data: Path,
    listen: str | None,
    advertised: str | None,
    only: tuple[tuple[str, ...], ...],
    config: Path | None,
    properties: tuple[tuple[str, str], ...],
) -> int:
    """Start Odradek and keep it running.

    The Kafka address and the data directory are printed once clients are answered; log lines go
    to stderr, each with the name of its process. Ctrl-C or SIGTERM stops everything in order.
    """
    address, listen = _listener(listen, config, properties)
    options = BrokerOptions(data.absolute(), listen, advertised, config, properties)
    _refuse_taken(options.data_directory)
    _await_free_port(session, address, options.data_directory)
    lock = _take(options.data_directory, address)
    try:
        return _supervise(session, options, address)
    finally:
        lock.release()


def _listener(
    listen: str | None, config: Path | None, properties: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, int], str | None]:
    """(address to bind, --listen for the broker); an explicit --listen wins over settings."""
    if listen is None:
        from appliance.client_config import parse_properties

        settings = parse_properties(config.read_text()) if config is not None else {}
        try:
            configured = configured_listener(settings | dict(properties))
        except ValueError:
            raise CommandError("listeners: write it as PLAINTEXT://HOST:PORT") from None
        if configured is not None:
            return configured, None
        listen = DEFAULT_LISTEN
    return split_address(listen), listen


def _take(data_directory: Path, address: tuple[str, int]) -> ServeLock:
    host, port = address
    about = {"pid": os.getpid(), "started_ms": SystemClock().wall_ms(), "kafka": f"{host}:{port}"}
    try:
        data_directory.mkdir(parents=True, exist_ok=True)
        return ServeLock.take(data_directory, about)
    except DataDirectoryTaken as error:
        raise _taken(data_directory, error.holder) from None
    except OSError as error:
        raise CommandError(
            f"cannot write to the data directory {data_directory}: {error.strerror}",
            hint="Choose another one with --data DIR, or give this user the right to write there.",
            code="DATA_DIRECTORY_NOT_WRITABLE",
        ) from None


def _refuse_taken(data_directory: Path) -> None:
    """Before the port is looked at: the same serve started twice holds both."""
    path = data_directory / FILE_NAME
    if is_locked(path):
        raise _taken(data_directory, read_holder(path))


def _taken(data_directory: Path, holder: dict[str, Any]) -> CommandError:
    return CommandError(
        f"{data_directory} is in use by another `odradek serve`: process "
        f"{holder.get('pid', 'unknown')}, Kafka on {holder.get('kafka', 'unknown')}",
        hint="Stop that one first, or choose another directory with --data DIR.",
        code="DATA_DIRECTORY_TAKEN",
    )


def _await_free_port(session: Session, address: tuple[str, int], data_directory: Path) -> None:
    """Fail when somebody listens; but wait for a broker of ours whose `serve` was killed."""
    deadline = time.monotonic() + PREDECESSOR_TIMEOUT_S
    is_waiting = False
    while True:
        problem = bind_problem(address)
        if problem is None:
            return
        predecessor = find_broker(data_directory)
        if problem.errno != errno.EADDRINUSE or predecessor is None or time.monotonic() > deadline:
            break
        if not is_waiting:
            session.note(
                f"the broker of an earlier serve (process {predecessor}) still stops, waiting"
            )
            is_waiting = True
        time.sleep(0.1)
    host, port = address
    if problem.errno == errno.EADDRINUSE:
        raise CommandError(
            f"port {port} on {host} is in use by another program",
            hint="Choose another one with --listen HOST:PORT; `odradek doctor` may tell who it is.",
            code="PORT_IN_USE",
        )
    raise CommandError(
        f"cannot listen on {host}:{port}: {problem.strerror}",
        hint="Choose an address of this machine with --listen HOST:PORT.",
        code="CANNOT_LISTEN",
    )


def bind_problem(address: tuple[str, int]) -> OSError | None:
    """Why the address cannot be listened on, found out by listening for a moment."""
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(
            *address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(target)
            trial.listen(1)
    except OSError as error:
        return error
    return None


def _supervise(session: Session, options: BrokerOptions, address: tuple[str, int]) -> int:
    host, port = address

    def announce() -> None:
        _say(
            f"Odradek {VERSION} is ready.\n"
            f"  Kafka  {_shown_address(options.advertised, address)}\n"
            f"  Data   {options.data_directory}\n"
            "Ctrl-C stops it.\n",
        )

    log = LogStream(sys.stderr.fileno())
    program = broker_program(options, reachable(host, port))
    failure = Supervisor([program], SystemClock(), log.write_line, announce).run()
    if failure is not None:
        session.complain(failure, "What it said stands above.")
        return EXIT_FAILED
    return EXIT_OK


def _shown_address(advertised: str | None, address: tuple[str, int]) -> str:
    """What to give a client; who listens everywhere is asked at the loopback address."""
    if advertised is not None:
        return advertised
    host, port = reachable(*address)
    shown = join_address(host, port)
    return shown if host == address[0] else f"{shown} (every address of this machine listens)"


def _say(text: str) -> None:
    """A terminal that went away must not take the broker with it."""
    with contextlib.suppress(OSError):
        sys.stdout.write(text)
        sys.stdout.flush()
