"""``odradek config get``: settings of topics and brokers, and where each value comes from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click

from appliance.entities import Entity, chosen_entities, entity_options, read_configs
from appliance.options import command, pass_session
from appliance.output import Column, Report, Table
from appliance.session import Session
from dashboard.cluster import DEFAULT_BROKER, ConfigView

COLUMNS = (
    Column("entity"),
    Column("key"),
    Column("value"),
    Column("source"),
    Column("read_only", is_wide=True),
    Column("synonyms", is_wide=True),
)


@command("get", has_kafka_format=True)
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@entity_options
@click.option("-a", "--all", "everything", is_flag=True, help="Those that were never changed too.")
@pass_session
def get(
    session: Session,
    keys: tuple[str, ...],
    topics: tuple[str, ...],
    brokers: tuple[str, ...],
    everything: bool,
) -> int:
    """Show settings: those that differ from the default, the named KEYs, or all with -a."""
    entities = chosen_entities(topics, brokers)
    found, errors = read_configs(session.gateway(), entities, list(keys) or None)
    if session.format == "kafka":
        text = "".join(
            kafka_layout(entity, views, everything=everything or bool(keys))
            for entity, views in found.items()
        )
        return session.emit(Report(text=text, errors=errors))
    rows = [
        _row(entity, view)
        for entity, views in found.items()
        for view in views
        if everything or keys or not view.is_default
    ]
    if not rows and not keys and found:
        total = sum(len(views) for views in found.values())
        session.note(f"nothing was changed; -a shows all {total} settings")
    return session.emit(Report([Table(COLUMNS, rows)], errors))


def _row(entity: Entity, view: ConfigView) -> dict[str, Any]:
    return {
        "entity": entity.label,
        "key": view.name,
        "value": view.value,
        "source": view.source.name,
        "read_only": view.is_read_only,
        "synonyms": _synonyms(view),
    }


def _synonyms(view: ConfigView) -> str:
    return ", ".join(f"{s.source.name}:{s.name}={_shown(s.value)}" for s in view.synonyms)


def _shown(value: str | None) -> str:
    return "null" if value is None else value


def kafka_layout(entity: Entity, views: Iterable[ConfigView], *, everything: bool) -> str:
    """One entity as kafka-configs --describe prints it."""
    shown: Sequence[ConfigView] = [
        view for view in views if everything or view.source is entity.own_source
    ]
    if entity.kind == "broker" and entity.name == DEFAULT_BROKER:
        head = "Default configs for brokers in the cluster are:"
    else:
        head = f"{'All' if everything else 'Dynamic'} configs for {entity.label} are:"
    lines = [
        f"  {view.name}={_shown(view.value)} sensitive={str(view.is_sensitive).lower()}"
        f" synonyms={{{_synonyms(view)}}}"
        for view in shown
    ]
    return "\n".join([head, *lines]) + "\n"
