"""``odradek doctor``: looks at this machine and at the way to the broker; changes nothing."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click
from click.core import ParameterSource

from appliance import checks, control, database_check, zookeeper_check
from appliance.checks import Check, Verdict
from appliance.client_config import parse_properties
from appliance.commands.serve import DEFAULT_LISTEN
from appliance.commands.spark import spark_home
from appliance.config import ApplianceConfig, ConfigError, load_for_serve
from appliance.failure import EXIT_OK, EXIT_UNHEALTHY, EXIT_USAGE, CommandError
from appliance.options import ADDRESS, command, data_option, pass_session
from appliance.output import Column, Report, Table
from appliance.process_checks import DEFAULT_WEB, check_processes
from appliance.session import Session
from appliance.supervisor import serve_lock
from appliance.supervisor.preflight import bind_problem
from broker.clock import SystemClock
from dashboard import probe
from dashboard.cluster import KafkaFailure
from dashboard.gateway import Gateway
from dashboard.spark.home import home_of

ZOOKEEPER = "zookeeper.connect"
LISTENER_KEYS = ("listeners", "advertised.listeners")
COLUMNS = (
    Column("check"),
    Column("status", "status"),
    Column("detail"),
    Column("hint", is_wide=True),
)


@command("doctor")
@data_option("The data directory to look at.", file_okay=True, takes_any_version=True)
@click.option(
    "--listen",
    type=ADDRESS,
    default=DEFAULT_LISTEN,
    envvar="ODRADEK_LISTEN",
    show_default=True,
    metavar="HOST:PORT",
    help="The port to look at.",
)
@click.option(
    "--web",
    type=ADDRESS,
    default=DEFAULT_WEB,
    envvar="ODRADEK_WEB",
    show_default=True,
    metavar="HOST:PORT",
    help="The dashboard's port, while nothing is served.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="The configuration that `odradek serve` has: where its database is.",
)
@click.pass_context
@pass_session
def doctor(
    session: Session,
    context: click.Context,
    data: Path,
    listen: str,
    web: str,
    config: Path | None,
) -> int:
    """Check this machine and the way to the broker. Exit code 10 when something fails.

    Where `odradek serve` runs on the data directory, it is its broker, unless -b or --listen names another one.
    """
    try:
        values = load_for_serve({"data": data}, config).values
    except ConfigError as error:
        raise CommandError(str(error), code="CONFIG", exit_code=EXIT_USAGE) from None
    database_url = values.database_url.get_secret_value()
    listen = _listen_of_the_serve(session, context, data) or listen
    found = [
        checks.check_python(),
        checks.check_data_directory(data.absolute()),
        *checks.check_version(data.absolute()),
        checks.check_hot_path(),
        checks.check_disk(data),
        checks.check_file_system(data),
        checks.check_sync(data.absolute()),
        checks.check_port(probe.split_address(listen), bind_problem),
        database_check.check(data.absolute(), database_url),
        *check_processes(data.absolute(), web, database_url, bind_problem),
        *_check_cluster(session),
        *_check_partitions(data),
        *_check_log_directories(data),
        *_check_zookeeper(session, values),
        checks.check_clock(data, SystemClock().wall_ms()),
        *_check_other_clocks(data),
        checks.check_descriptors(),
        checks.check_maps(),
        checks.check_java(),
        checks.check_spark(home_of(data.absolute(), spark_home())),
    ]
    rows = [
        {"check": c.name, "status": str(c.verdict), "detail": c.detail, "hint": c.hint}
        for c in found
    ]
    session.emit(Report([Table(COLUMNS, rows)]))
    if session.format == "text":
        for check in found:
            if check.hint is not None and check.verdict in (Verdict.WARN, Verdict.FAIL):
                session.note(f"{check.name}: {check.hint}")
    has_failed = any(check.verdict is Verdict.FAIL for check in found)
    return EXIT_UNHEALTHY if has_failed else EXIT_OK


def _listen_of_the_serve(session: Session, context: click.Context, data: Path) -> str | None:
    """Where the serve on ``data`` listens, which is asked then, if nothing else was said; None without."""
    is_said = context.get_parameter_source("listen") is not ParameterSource.DEFAULT
    holder = serve_lock.holder_on(data)
    kafka = None if holder is None else holder.get("kafka")
    if not isinstance(kafka, str) or is_said:
        return None
    if not session.names_cluster:
        session.bootstrap = probe.join_address(*probe.reachable(*probe.split_address(kafka)))
    return kafka


def _check_partitions(data: Path) -> list[Check]:
    """Of the broker on this data directory, if one runs."""
    try:
        found = control.ask(data.absolute(), "offline")["partitions"]
    except CommandError:
        return []
    if not found:
        return [Check("partitions", Verdict.OK, "none is offline because of damage")]
    return [
        Check(
            f"partition {each['topic']}-{each['partition']}",
            Verdict.FAIL,
            f"offline: {each['reason']}",
            f"`odradek topic repair {each['topic']}` shows what can be done.",
        )
        for each in found
    ]


def _check_log_directories(data: Path) -> list[Check]:
    """Of the broker on this data directory, if one runs."""
    try:
        found = control.ask(data.absolute(), "node")["log_dirs"]
    except CommandError:
        return []
    return [
        Check(
            "log directory",
            Verdict.FAIL,
            f"{each['path']} has failed: what lies there is not served",
            f"The broker's log says why. `ls -ld {each['path']}` and `dmesg` tell more; mend it, then start the broker anew.",
        )
        for each in found
        if each["is_offline"]
    ]


def _check_other_clocks(data: Path) -> list[Check]:
    """By the broker on this data directory, if one runs, and knows how."""
    try:
        return checks.check_other_clocks(control.ask(data.absolute(), "clocks")["brokers"])
    except CommandError:
        return []


def _check_zookeeper(session: Session, values: ApplianceConfig) -> list[Check]:
    """Of the broker that answers, if it belongs to a cluster in ZooKeeper; of one that does not, by its settings."""
    try:
        gateway = session.gateway()
        brokers = gateway.cluster().brokers
        names = [str(broker.broker_id) for broker in brokers[:1]]
        views = gateway.broker_configs(names, [ZOOKEEPER])
    except (CommandError, KafkaFailure):
        # That is told by the checks of the broker; without ZooKeeper none starts.
        connect = _broker_settings(values).get(ZOOKEEPER)
        return zookeeper_check.check(connect) if connect else []
    told = next(iter(views.values()), [])
    connect = told[0].value if isinstance(told, list) and told else None
    return zookeeper_check.check(connect) if connect else []


def _broker_settings(values: ApplianceConfig) -> dict[str, str]:
    """As a file and the environment have them; what `serve --property` was told nobody knows afterwards."""
    found: dict[str, str] = {}
    if values.broker_config is not None:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            found |= parse_properties(values.broker_config.read_text())
    return found | values.broker


def _check_cluster(session: Session) -> list[Check]:
    bootstrap, _ = session.resolve_cluster()
    try:
        gateway = session.gateway()
        cluster = gateway.cluster()
    except CommandError as error:
        return [Check("broker", Verdict.INFO, str(error), error.item.hint)]
    except KafkaFailure as failure:
        return [
            Check(
                "broker",
                Verdict.FAIL,
                f"{bootstrap} answers, but no client gets through: {failure.message}",
                "The address that it advertises may be wrong: --advertised HOST:PORT.",
            )
        ]
    brokers = [(broker.broker_id, broker.host, broker.port) for broker in cluster.brokers]

    def dial(address: tuple[str, int]) -> None:
        if gateway.is_plain:
            probe.ask_api_versions(address, checks.DIAL_TIMEOUT_S)
        else:
            probe.connect_only(address, checks.DIAL_TIMEOUT_S)

    found = [
        Check("broker", Verdict.OK, f"{bootstrap} answers, {len(brokers)} in the cluster"),
        *checks.check_advertised(brokers, dial=dial),
    ]
    if any(check.verdict is Verdict.FAIL for check in found):
        # Settings of a broker are asked there, where nobody answers.
        return found
    for broker_id, host, port in brokers:
        told = _advertised_listeners(gateway, broker_id)
        found += checks.check_other_listeners(broker_id, told, (host, port), dial=_connect_only)
    return found


def _advertised_listeners(gateway: Gateway, broker_id: int) -> dict[str, tuple[str, int]]:
    """What a broker advertises by listener; nothing where it does not tell."""
    try:
        views = gateway.broker_configs([str(broker_id)], LISTENER_KEYS)[str(broker_id)]
    except KafkaFailure:
        return {}
    if isinstance(views, KafkaFailure):
        return {}
    values = {view.name: view.value for view in views}
    own, told = (checks.parse_listeners(values.get(key)) for key in LISTENER_KEYS)
    return told or own


def _connect_only(address: tuple[str, int]) -> None:
    """Another listener may want TLS: that somebody listens has to do."""
    probe.connect_only(address, checks.DIAL_TIMEOUT_S)
