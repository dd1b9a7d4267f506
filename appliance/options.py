"""Click's side of the command line: global options, lazy groups, parameter types.

Every command takes the global options too, hidden in its help, so that they may stand where the
hand puts them. Groups import a command's module only when that command runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from appliance.output import FORMATS
from appliance.session import Session

if TYPE_CHECKING:
    from dashboard.gateway import Gateway

ENVIRONMENT_BOOTSTRAP = "ODRADEK_BOOTSTRAP"
_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"]}


class DurationType(click.ParamType[int]):
    """``10s``, ``1h30m``, ``250ms``; milliseconds inside. A bare number counts seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        from dashboard.offset_range import parse_duration_ms

        try:
            return int(value) * 1000 if value.isdigit() else parse_duration_ms(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class KeyValueType(click.ParamType[tuple[str, str]]):
    """``KEY=VALUE`` as a pair; only the first ``=`` parts them."""

    name = "key=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, separator, text = value.partition("=")
        if not separator or not key:
            self.fail(f"{value!r} is not KEY=VALUE", param, ctx)
        return key, text


class AddressType(click.ParamType[str]):
    """``HOST:PORT`` or ``PORT``; kept as text with both parts."""

    name = "host:port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from dashboard.probe import join_address, split_address

        try:
            return join_address(*split_address(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class AddressListType(click.ParamType[str]):
    """One or more addresses with commas between them; kept as text."""

    name = "host:port,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return ",".join(ADDRESS.convert(each, param, ctx) for each in str(value).split(","))


class PartitionListType(click.ParamType[frozenset[int]]):
    """``0,3-5``: partition numbers, ranges inclusive."""

    name = "partitions"
    MAX_COUNT = 100_000

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> frozenset[int]:
        if isinstance(value, frozenset):
            return value
        found: set[int] = set()
        for piece in value.split(","):
            first, separator, last = piece.partition("-")
            if not first.isdigit() or (separator and not last.isdigit()):
                self.fail(f"{value!r} is not a list of partitions such as 0,3-5", param, ctx)
            end = int(last or first) + 1
            if end - int(first) + len(found) > self.MAX_COUNT:
                self.fail(f"{value!r} names more than {self.MAX_COUNT} partitions", param, ctx)
            found.update(range(int(first), end))
        return frozenset(found)


class ClusterNameType(click.ParamType[str]):
    """The name of something in the cluster, completed by the shell from the one that answers."""

    def __init__(self, name: str, names: Callable[[Gateway], Iterable[str]]) -> None:
        self.name = name
        self._names = names

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            # The client library ends the whole process over an empty group.
            self.fail(f"the name of a {self.name} cannot be empty", param, ctx)
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[click.shell_completion.CompletionItem]:
        from click.shell_completion import CompletionItem

        from appliance.failure import CommandError
        from dashboard.cluster import KafkaFailure

        session = ctx.find_object(Session) or Session()
        session.timeout_ms = min(session.timeout_ms, 1000)
        try:
            names = list(self._names(session.gateway()))
        except (CommandError, KafkaFailure):
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _topic_names(gateway: Gateway) -> Iterable[str]:
    return (topic.name for topic in gateway.cluster().topics)


def _group_names(gateway: Gateway) -> Iterable[str]:
    return (listing.group for listing in gateway.groups.listings())


DURATION = DurationType()
KEY_VALUE = KeyValueType()
ADDRESS = AddressType()
ADDRESSES = AddressListType()
PARTITIONS = PartitionListType()
TOPIC = ClusterNameType("topic", _topic_names)
GROUP = ClusterNameType("group", _group_names)


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    source = ctx.get_parameter_source(str(param.name))
    if source in (click.core.ParameterSource.DEFAULT, click.core.ParameterSource.DEFAULT_MAP):
        return
    # A shell that completes a line parses it too, unfinished as it is.
    if ctx.resilient_parsing and value is None:
        return
    ctx.ensure_object(Session).remember(str(param.name), value)


def _global_options(*, hidden: bool) -> list[click.Option]:
    def option(*names: str, help: str, **more: Any) -> click.Option:  # noqa: A002 - click's name
        return click.Option(
            names, help=help, hidden=hidden, expose_value=False, callback=_remember, **more
        )

    environment = None if hidden else ENVIRONMENT_BOOTSTRAP
    return [
        option(
            "-b",
            "--bootstrap-server",
            "bootstrap",
            metavar="HOST:PORT",
            envvar=environment,
            show_envvar=True,
            help="Where a broker of the cluster listens; default 127.0.0.1:9092.",
        ),
        option("--profile", metavar="NAME", help="Take the cluster from config.toml."),
        option(
            "-X",
            "properties",
            type=KEY_VALUE,
            multiple=True,
            metavar="K=V",
            help="Property of the Kafka client (librdkafka's names).",
        ),
        option(
            "--command-config",
            metavar="FILE",
            help="Client properties, as Kafka's own tools take them.",
        ),
        option(
            "--format",
            metavar="|".join(FORMATS),
            help="How the result is written; default text.",
            type=click.Choice([*FORMATS, "kafka"]),
        ),
        option("-q", "--quiet", "is_quiet", is_flag=True, help="No notes on stderr."),
        option("-v", "--verbose", "is_verbose", is_flag=True, help="Client library's log too."),
        option(
            "--timeout",
            "timeout_ms",
            type=DURATION,
            metavar="10s",
            help="How long to wait for an answer.",
        ),
        option("--no-color", is_flag=True, help="No colours (NO_COLOR works too)."),
        option("--yes", "assume_yes", is_flag=True, help="Confirm destructive steps beforehand."),
    ]


class ReaderLeft(Exception):
    """Whoever read our output has gone."""


class Command(click.Command):
    """A command that takes the global options as well as its own.

    ``formats``: what it can write beyond the usual; ``kafka`` is the layout of Kafka's tool.
    """

    def __init__(self, *args: Any, has_kafka_format: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.has_kafka_format = has_kafka_format
        own = {name for param in self.params for name in param.opts}
        self.params.extend(
            option for option in _global_options(hidden=True) if own.isdisjoint(option.opts)
        )
        if self.epilog is None:
            self.epilog = "Global options: odradek --help"

    def invoke(self, ctx: click.Context) -> Any:
        session = ctx.ensure_object(Session)
        if session.format == "kafka" and not self.has_kafka_format:
            raise click.UsageError("--format kafka only goes with commands that Kafka has too", ctx)
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # click would end the process with status 1.
            raise ReaderLeft from None


class LazyGroup(click.Group):
    """A group whose commands are ``name: (module:attribute, one line of help)``.

    An empty help line hides the command.
    """

    def __init__(
        self,
        *args: Any,
        lazy: dict[str, tuple[str, str]],
        aliases: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy
        self._aliases = aliases or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, (_, text) in self._lazy.items() if text]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = self._aliases.get(cmd_name, cmd_name)
        if name not in self._lazy:
            return None
        module_name, _, attribute = self._lazy[name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module_name), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            close = _closest(args[0], [*self.list_commands(ctx), *self._aliases]) if args else None
            if close is not None:
                raise click.UsageError(f"{error.message} Did you mean {close!r}?", ctx) from None
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, text) for name, (_, text) in self._lazy.items() if text]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def lazy_group(
    name: str, lazy: dict[str, tuple[str, str]], aliases: dict[str, str]
) -> Callable[[Callable[..., Any]], click.Group]:
    """Declare a group of commands whose docstring is its help."""
    return click.group(name, cls=LazyGroup, lazy=lazy, aliases=aliases, context_settings=_SETTINGS)


class RootGroup(LazyGroup):
    """The ``odradek`` command itself."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(_global_options(hidden=False))


def _closest(word: str, known: list[str]) -> str | None:
    import difflib

    found = difflib.get_close_matches(word, known, n=1)
    return found[0] if found else None


def command(
    name: str, *, has_kafka_format: bool = False, **attributes: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    """Declare a command of ours: ``@command("list")`` over click's own option decorators."""
    return click.command(
        name,
        cls=Command,
        has_kafka_format=has_kafka_format,
        context_settings=_SETTINGS,
        **attributes,
    )


def _refuse_newer_data(ctx: click.Context, param: click.Parameter, value: Path) -> Path:
    from appliance.data_version import refuse_newer

    if not ctx.resilient_parsing:
        refuse_newer(value)
    return value


def data_option(
    help_text: str, *, file_okay: bool = False, takes_any_version: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``--data``, for commands that go to this machine's data directory, not to a cluster.

    One that a newer version wrote is refused, but for a command that ``takes_any_version``.
    """
    return click.option(
        "--data",
        type=click.Path(path_type=Path, file_okay=file_okay),
        default=Path("data"),
        envvar="ODRADEK_DATA",
        show_envvar=True,
        show_default="./data",
        metavar="DIR",
        help=help_text,
        callback=None if takes_any_version else _refuse_newer_data,
    )


pass_session = click.make_pass_decorator(Session, ensure=True)
