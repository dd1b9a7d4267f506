"""Hidden alias for kafka-consumer-groups; see ``kafka_tools.py``."""

from __future__ import annotations

from typing import Any

import click

from appliance.classic import forward, only_action, repeated
from appliance.classic_groups import listing_text
from appliance.commands.group_describe import classic_text
from appliance.commands.group_list import STATE_LIST, TYPE_LIST
from appliance.groups import GroupFigures, choose_groups
from appliance.options import command, pass_session
from appliance.output import Report
from appliance.session import Session

ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
TARGETS = ("to-offset", "to-datetime", "by-duration", "shift-by", "from-file")
TARGET_FLAGS = ("to-earliest", "to-latest", "to-current")
_ANY = ""


@command("kafka-consumer-groups", hidden=True)
@click.option("--list", "list_", is_flag=True)
@click.option("--describe", is_flag=True)
@click.option("--delete", is_flag=True)
@click.option("--reset-offsets", is_flag=True)
@click.option("--delete-offsets", is_flag=True)
@click.option("--group", "groups", multiple=True)
@click.option("--all-groups", is_flag=True)
@click.option("--topic", "topics", multiple=True)
@click.option("--all-topics", is_flag=True)
@click.option("--members", is_flag=True)
@click.option("--offsets", is_flag=True)
@click.option("--state", is_flag=False, flag_value=_ANY)
@click.option("--type", "type_", is_flag=False, flag_value=_ANY)
@click.option("--verbose", is_flag=True)
@click.option("--timeout", type=click.IntRange(1), metavar="MS")
@click.option("--to-offset")
@click.option("--to-datetime")
@click.option("--by-duration")
@click.option("--shift-by")
@click.option("--from-file")
@click.option("--to-earliest", is_flag=True)
@click.option("--to-latest", is_flag=True)
@click.option("--to-current", is_flag=True)
@click.option("--dry-run", is_flag=True)
@click.option("--execute", is_flag=True)
@click.option("--export", is_flag=True)
@pass_session
def kafka_consumer_groups(session: Session, /, **given: Any) -> int:
    """The flags of kafka-consumer-groups.sh."""
    given["list"] = given.pop("list_")
    action = only_action({name: given[_key(name)] for name in ACTIONS}, "kafka-consumer-groups")
    if given["timeout"] is not None:
        session.timeout_ms = given["timeout"]
    if action == "list":
        return _list(session, given["state"], given["type_"])
    if not given["groups"] and not given["all_groups"]:
        raise click.UsageError(f"--{action} wants --group NAME or --all-groups")
    # Last, and behind two dashes: a name may begin with one.
    groups = [*(["--all-groups"] if given["all_groups"] else []), "--", *given["groups"]]
    if action == "describe":
        return _describe(session, given)
    if action == "delete":
        return forward(session, ["group", "delete", "--yes", *groups])
    if action == "delete-offsets":
        if not given["topics"] or len(given["groups"]) != 1 or given["all_groups"]:
            raise click.UsageError("--delete-offsets wants one --group NAME, and --topic NAME")
        topics = repeated("--topic", given["topics"])
        return forward(session, ["group", "delete-offsets", "--yes", *topics, *groups])
    return _reset(session, groups, given)


def _key(name: str) -> str:
    return name.replace("-", "_")


def _list(session: Session, state: str | None, type_: str | None) -> int:
    """Names alone; with --state or --type a table of all groups, or of those with one of theirs."""
    states = STATE_LIST.convert(state, None, None) if state else None
    types = TYPE_LIST.convert(type_, None, None) if type_ else None
    listings = [
        listing
        for listing in session.gateway().groups.listings()
        if (states is None or listing.state in states)
        and (types is None or listing.group_type in types)
    ]
    if state is None and type_ is None:
        return session.emit(Report(text="".join(f"{listing.group}\n" for listing in listings)))
    text = listing_text(listings, with_type=type_ is not None, with_state=state is not None)
    return session.emit(Report(text=text))


def _describe(session: Session, given: dict[str, Any]) -> int:
    sections = {"members": given["members"], "offsets": given["offsets"], "state": False}
    if given["state"] is not None:
        if given["state"] != _ANY:
            raise click.UsageError("--state takes no value with --describe")
        sections["state"] = True
    section = only_action(sections, "--describe") if any(sections.values()) else "offsets"
    gateway = session.gateway()
    names = choose_groups(gateway, given["groups"], everything=given["all_groups"])
    figures = GroupFigures(gateway, names)
    text = classic_text(session, figures, section, is_verbose=given["verbose"])
    return session.emit(Report(errors=figures.errors, text=text))


def _reset(session: Session, groups: list[str], given: dict[str, Any]) -> int:
    if not given["topics"] and not given["all_topics"] and given["from_file"] is None:
        raise click.UsageError("--reset-offsets wants --topic NAME or --all-topics")
    arguments = ["group", "seek", *repeated("--topic", given["topics"])]
    for name in TARGETS:
        value = given[_key(name)]
        arguments += [] if value is None else [f"--{name}", value]
    for name in (*TARGET_FLAGS, "all-topics", "dry-run", "execute", "export"):
        arguments += [f"--{name}"] if given[_key(name)] else []
    return forward(session, [*arguments, *groups])
