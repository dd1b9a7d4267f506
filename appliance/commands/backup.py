"""``odradek backup ...``: backups of a running node, kept in a directory of their own."""

from __future__ import annotations

from appliance.options import lazy_group

COMMANDS = {
    "create": ("appliance.commands.backup_create:create", "Back up the node that runs."),
    "list": ("appliance.commands.backup_restore:list_backups", "The backups in a directory."),
    "verify": ("appliance.commands.backup_restore:verify", "Is a backup whole?"),
    "prune": ("appliance.commands.backup_restore:prune", "Remove all but the newest."),
    "restore": ("appliance.commands.backup_restore:restore", "Make a data directory from one."),
}
ALIASES = {"ls": "list"}


@lazy_group("backup", COMMANDS, ALIASES)
def backup() -> None:
    """Backups of a running node: records, metadata, groups, database, schedules, settings."""
