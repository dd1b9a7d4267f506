"""``odradek group ...``: the group; each of its commands is a module of its own."""

from __future__ import annotations

from appliance.options import lazy_group

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


@lazy_group("group", COMMANDS, ALIASES)
def group() -> None:
    """Consumer groups: who reads what, and how far."""
