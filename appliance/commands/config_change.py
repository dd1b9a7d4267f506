"""``odradek config set``, ``export`` and ``import``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TextIO

import click

from appliance.commands.topic_change import config_changes
from appliance.entities import (
    DEFAULT_WORD,
    Entity,
    alter_entity,
    chosen_entities,
    entity_options,
    read_configs,
)
from appliance.failure import EXIT_USAGE, CommandError, ItemError
from appliance.options import KEY_VALUE, command, pass_session
from appliance.output import Column, Report, Table
from appliance.session import Session
from dashboard.cluster import DEFAULT_BROKER, ConfigChange, ConfigOperation, KafkaFailure

COLUMNS = (Column("entity"), Column("status", "status"))


@command("set", has_kafka_format=True)
@click.argument("sets", nargs=-1, type=KEY_VALUE, metavar="[KEY=VALUE]...")
@entity_options
@click.option("--delete", "deletes", multiple=True, metavar="KEY", help="Back to the default.")
@click.option(
    "--append", "appends", type=KEY_VALUE, multiple=True, metavar="K=V", help="To a list."
)
@click.option(
    "--subtract", "subtracts", type=KEY_VALUE, multiple=True, metavar="K=V", help="From a list."
)
@click.option("-d", "--dry-run", is_flag=True, help="Ask the broker, change nothing.")
@pass_session
def set_configs(
    session: Session,
    sets: tuple[tuple[str, str], ...],
    topics: tuple[str, ...],
    brokers: tuple[str, ...],
    deletes: tuple[str, ...],
    appends: tuple[tuple[str, str], ...],
    subtracts: tuple[tuple[str, str], ...],
    dry_run: bool,
) -> int:
    """Change settings of topics or brokers; they take effect without a restart."""
    changes = config_changes(sets, deletes, appends, subtracts)
    if not changes:
        raise click.UsageError("nothing to do: give KEY=VALUE or --delete KEY")
    entities = dict.fromkeys(chosen_entities(topics, brokers), changes)
    return _apply(session, entities, dry_run=dry_run)


def _apply(session: Session, changes: Mapping[Entity, list[ConfigChange]], *, dry_run: bool) -> int:
    gateway = session.gateway()
    rows: list[dict[str, str]] = []
    errors: list[ItemError] = []
    for entity, of_entity in changes.items():
        failure: KafkaFailure | None = None
        if of_entity:
            failure = alter_entity(gateway, entity, of_entity, validate_only=dry_run)
        if failure is None:
            status = "OK (dry run)" if dry_run else "OK"
        else:
            status = failure.code
            errors.append(ItemError.of(failure, **entity.subject))
        rows.append({"entity": entity.label, "status": status})
    text = None
    if session.format == "kafka":
        changed = [
            entity
            for entity, row in zip(changes, rows, strict=True)
            if row["status"].startswith("OK")
        ]
        text = "".join(f"{entity.classic_update_words}\n" for entity in changed)
    return session.emit(Report([Table(COLUMNS, rows)], errors, text=text))


@command("export")
@pass_session
def export(session: Session) -> int:
    """Write all settings that were changed, of every topic and broker, as one JSON document.

    Sensitive values are not told by brokers and are left out.
    """
    gateway = session.gateway()
    cluster = gateway.cluster()
    entities = [
        *(Entity("topic", topic.name) for topic in cluster.topics if not topic.is_internal),
        Entity("broker", DEFAULT_BROKER),
        *(Entity("broker", str(broker.broker_id)) for broker in cluster.brokers),
    ]
    found, errors = read_configs(gateway, entities, None)
    document: dict[str, dict[str, dict[str, str]]] = {"topics": {}, "brokers": {}}
    for entity, views in found.items():
        document[f"{entity.kind}s"][entity.name or DEFAULT_WORD] = {
            view.name: view.value
            for view in views
            if view.source is entity.own_source and view.value is not None
        }
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    if session.format == "text":
        return session.emit(Report(text=text, errors=errors))
    return session.emit(Report(data=[document], errors=errors))


@command("import")
@click.argument("file", type=click.File("r"), metavar="FILE")
@click.option("-d", "--dry-run", is_flag=True, help="Ask the broker, change nothing.")
@pass_session
def import_configs(session: Session, file: TextIO, dry_run: bool) -> int:
    """Set what a document of `config export` holds (- is standard input).

    Settings that it does not name stay as they are.
    """
    try:
        changes = _parse(json.load(file))
    except (ValueError, TypeError, AttributeError) as error:
        raise CommandError(
            f"{file.name} is not a document of `odradek config export`: {error}",
            code="BAD_INPUT",
            exit_code=EXIT_USAGE,
        ) from None
    return _apply(session, changes, dry_run=dry_run)


def _parse(document: Any) -> dict[Entity, list[ConfigChange]]:
    unknown = set(document) - {"topics", "brokers"}
    if unknown:
        raise ValueError(f"unknown part {', '.join(sorted(map(str, unknown)))}")
    changes: dict[Entity, list[ConfigChange]] = {}
    for kind in ("topic", "broker"):
        for name, settings in document.get(f"{kind}s", {}).items():
            is_default = kind == "broker" and name == DEFAULT_WORD
            changes[Entity(kind, DEFAULT_BROKER if is_default else name)] = [
                ConfigChange(key, ConfigOperation.SET, str(value))
                for key, value in settings.items()
            ]
    return changes
