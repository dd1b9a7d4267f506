"""``odradek topic ...``: the group; each of its commands is a module of its own."""

from __future__ import annotations

import click

from appliance.options import LazyGroup

COMMANDS = {
    "list": ("appliance.commands.topic_list:list_topics", "Topics with their size and state."),
    "create": ("appliance.commands.topic_change:create", "Create topics."),
    "describe": ("appliance.commands.topic_describe:describe", "Partitions and settings."),
    "alter": ("appliance.commands.topic_change:alter", "Change settings, add partitions."),
    "delete": ("appliance.commands.topic_change:delete", "Delete topics and their records."),
    "repair": ("appliance.commands.topic_repair:repair", "Bring damaged partitions back."),
    "trim": ("appliance.commands.topic_trim:trim", "Forget the oldest records."),
}
ALIASES = {
    "ls": "list",
    "info": "describe",
    "alter-config": "alter",
    "rm": "delete",
    "trim-prefix": "trim",
}


@click.group(
    "topic",
    cls=LazyGroup,
    lazy=COMMANDS,
    aliases=ALIASES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
def topic() -> None:
    """List, create, change and delete topics."""
