"""``odradek user ...``: who may sign in to the dashboard, from the shell of its machine.

Works on the database alone, whether or not the dashboard runs. Django is imported only by commands
below this one.
"""

from __future__ import annotations

from appliance.options import lazy_group

COMMANDS = {
    "list": ("appliance.commands.user_list:list_users", "Users, their roles, last sign-ins."),
    "add": ("appliance.commands.user_change:add", "Make a user."),
    "passwd": ("appliance.commands.user_change:passwd", "Give a user another password."),
    "role": ("appliance.commands.user_change:role", "Give users another role."),
    "rm": ("appliance.commands.user_change:remove", "Remove users."),
}
ALIASES = {"ls": "list", "create": "add", "delete": "rm", "remove": "rm", "password": "passwd"}


@lazy_group("user", COMMANDS, ALIASES)
def user() -> None:
    """Users of the dashboard: viewers look, operators change topics and groups, admins all."""
