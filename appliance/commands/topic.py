"""``odradek topic ...``: the group; each of its commands is a module of its own."""

from __future__ import annotations

from appliance.options import lazy_group

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


@lazy_group("topic", COMMANDS, ALIASES)
def topic() -> None:
    """List, create, change and delete topics."""
