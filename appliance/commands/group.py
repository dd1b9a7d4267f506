"""``odradek group ...``: the group; each of its commands is a module of its own."""

from __future__ import annotations

import click

from appliance.options import LazyGroup

COMMANDS = {
    "list": ("appliance.commands.group_list:list_groups", "Groups with their state and lag."),
    "describe": (
        "appliance.commands.group_describe:describe",
        "State, members, offsets and lag of groups.",
    ),
    "seek": ("appliance.commands.group_seek:seek", "Move committed offsets."),
    "delete": ("appliance.commands.group_delete:delete", "Delete groups and their offsets."),
    "delete-offsets": (
        "appliance.commands.group_delete:delete_offsets",
        "Forget what a group committed for some partitions.",
    ),
}
ALIASES = {
    "ls": "list",
    "info": "describe",
    "reset": "seek",
    "reset-offsets": "seek",
    "rm": "delete",
    "offset-delete": "delete-offsets",
}


@click.group(
    "group",
    cls=LazyGroup,
    lazy=COMMANDS,
    aliases=ALIASES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
def group() -> None:
    """Consumer groups: who reads what, and how far."""
