"""The ``odradek`` command: what exists, and how every way of ending becomes an exit code.

Start-up is bought by laziness: this module imports click and little else; a command's module is
imported when it runs, the Kafka client library when a cluster is asked for. ``odradek version``
stays under 300 ms (a test counts modules rather than milliseconds).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from appliance.failure import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_USAGE,
    CommandError,
    ItemError,
)
from appliance.options import ReaderLeft, RootGroup
from appliance.session import Session

COMMANDS = {
    "serve": ("appliance.commands.serve:serve", "Start Odradek and keep it running."),
    "status": ("appliance.commands.status:status", "Is the cluster healthy? Exit code 10 if not."),
    "cluster": ("appliance.commands.cluster:cluster", "The brokers and what they hold."),
    "topic": ("appliance.commands.topic:topic", "List, create, change and delete topics."),
    "group": ("appliance.commands.group:group", "Consumer groups: lag, offsets, members."),
    "produce": ("appliance.commands.produce:produce", "Write records from standard input."),
    "consume": ("appliance.commands.consume:consume", "Read records."),
    "tail": ("appliance.commands.consume:tail", "Read records as they arrive."),
    "config": (
        "appliance.commands.config:config",
        "Settings of topics, brokers and the appliance.",
    ),
    "job": ("appliance.commands.job:job", "Jobs of the worker: schedules and runs."),
    "user": ("appliance.commands.user:user", "Who may sign in to the dashboard."),
    "doctor": ("appliance.commands.doctor:doctor", "Check this machine and the way to the broker."),
    "support-bundle": (
        "appliance.commands.support_bundle:support_bundle",
        "What somebody who helps needs to see, without secrets.",
    ),
    "demo": ("appliance.commands.demo:demo", "A shop that writes events, and reports on them."),
    "report": ("appliance.commands.report:report", "Reports, which Spark computes."),
    "spark": ("appliance.commands.spark:spark", "Spark, which computes reports."),
    "backup": ("appliance.commands.backup:backup", "Backups of a running node."),
    "adopt": ("appliance.commands.adopt:adopt", "Take over a stopped Apache Kafka's data."),
    "import": (
        "appliance.commands.import_topics:import_topics",
        "Copy topics from another Kafka cluster.",
    ),
    "version": ("appliance.commands.version:version", "Versions of what is installed."),
    "kafka-topics": ("appliance.commands.kafka_tools:kafka_topics", ""),
    "kafka-configs": ("appliance.commands.kafka_tools:kafka_configs", ""),
    "kafka-console-producer": ("appliance.commands.kafka_console:kafka_console_producer", ""),
    "kafka-console-consumer": ("appliance.commands.kafka_console:kafka_console_consumer", ""),
    "kafka-consumer-groups": ("appliance.commands.kafka_groups:kafka_consumer_groups", ""),
    "kafka-get-offsets": ("appliance.commands.kafka_tools:kafka_get_offsets", ""),
}
ALIASES = {name + ".sh": name for name in COMMANDS if name.startswith("kafka-")}


@click.group(
    cls=RootGroup,
    lazy=COMMANDS,
    aliases=ALIASES,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 no broker answers, 10 unhealthy, "
    "130 interrupted. Results go to stdout, everything else to stderr.",
)
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Odradek: a log that Kafka clients write to and read from."""
    ctx.ensure_object(Session)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; returns its exit code."""
    session = Session()
    try:
        result = cli.main(args=argv, prog_name="odradek", standalone_mode=False, obj=session)
        return result if isinstance(result, int) else EXIT_OK
    except click.exceptions.Abort:
        return _interrupted()
    except KeyboardInterrupt:
        return _interrupted()
    except click.ClickException as error:
        _usage(session, error)
        return EXIT_USAGE
    except CommandError as error:
        _report(session, error.item)
        return error.exit_code
    except ReaderLeft:
        return _reader_left()
    except Exception as error:  # noqa: BLE001 - the edge: everything becomes an exit code
        return _unexpected(session, error)


def _interrupted() -> int:
    sys.stderr.write("interrupted\n")
    return EXIT_INTERRUPTED


def _usage(session: Session, error: click.ClickException) -> None:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        sys.stderr.write(f"{error.format_message()}\n")
        return
    context = getattr(error, "ctx", None)
    hint = None if context is None else f"`{context.command_path} --help` shows how it is used."
    session.complain(error.format_message(), hint)


def _report(session: Session, item: ItemError) -> None:
    """An error that ended the command; documents are written even then."""
    if session.format in ("json", "yaml"):
        from appliance.output import Report

        sys.stdout.write(Report(errors=[item]).render(session.format))
        sys.stdout.flush()
    session.complain(item.as_line(), item.hint)


def _reader_left() -> int:
    """Whoever read our output has gone (``| head``): not an error, but nothing more to say."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_OK


def _unexpected(session: Session, error: Exception) -> int:
    from dashboard.cluster import KafkaFailure

    if isinstance(error, KafkaFailure):
        bootstrap, _ = session.resolve_cluster()
        failed = CommandError.of(error, bootstrap)
        _report(session, failed.item)
        return failed.exit_code
    if session.is_verbose:
        raise error
    _report(
        session,
        ItemError(
            "INTERNAL", f"{type(error).__name__}: {error}", {}, "Run it again with -v for details."
        ),
    )
    return EXIT_FAILED
