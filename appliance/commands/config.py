"""``odradek config ...``: settings of topics and brokers."""

from __future__ import annotations

from appliance.options import lazy_group

COMMANDS = {
    "show": ("appliance.commands.config_show:show", "The appliance's own settings, with source."),
    "get": ("appliance.commands.config_get:get", "Show settings and where they come from."),
    "set": ("appliance.commands.config_change:set_configs", "Change settings."),
    "export": ("appliance.commands.config_change:export", "All changed settings as JSON."),
    "import": ("appliance.commands.config_change:import_configs", "Apply such a JSON document."),
}
ALIASES = {"describe": "get", "alter": "set"}


@lazy_group("config", COMMANDS, ALIASES)
def config() -> None:
    """Settings of topics and brokers, and of the appliance (show)."""
