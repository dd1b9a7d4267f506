"""``odradek config show``: the appliance's own settings, and where each value came from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from appliance.failure import EXIT_USAGE, CommandError
from appliance.options import command, data_option, pass_session
from appliance.output import Column, Report, Table
from appliance.session import Session

COLUMNS = (Column("key"), Column("value"), Column("source"), Column("description"))
HIDDEN = "(hidden)"
_SECRET = re.compile(r"password|secret|token|jaas|\.key$|\.pem$", re.IGNORECASE)
"""Keys of Kafka's own whose values are nobody's business."""


@command("show")
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@data_option("Where everything is kept.")
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="The file that `odradek serve --config` would get.",
)
@pass_session
def show(session: Session, /, keys: tuple[str, ...], config: Path | None, **options: Any) -> int:
    """Show what `odradek serve` would run with: every setting, its value and its source.

    Sources are default, file, environment (ODRADEK_KEY), secret file (ODRADEK_KEY_FILE) and flag;
    each is stronger than those before it. Values of secrets are not shown.
    """
    from appliance.config import ApplianceConfig, ConfigError, load_for_serve

    source = click.get_current_context().get_parameter_source("data")
    is_given = source is click.core.ParameterSource.COMMANDLINE
    flags = {"data": options["data"]} if is_given else {}
    try:
        loaded = load_for_serve(flags, config)
    except ConfigError as error:
        raise CommandError(str(error), code="CONFIG", exit_code=EXIT_USAGE) from None
    known = list(ApplianceConfig.model_fields)
    unknown = [key for key in keys if key not in known]
    if unknown:
        raise CommandError(
            f"there is no setting {unknown[0]!r}",
            hint="`odradek config show` lists all of them.",
            exit_code=EXIT_USAGE,
        )
    rows = [
        {
            "key": name,
            "value": shown(getattr(loaded.values, name)),
            "source": loaded.sources[name],
            "description": ApplianceConfig.model_fields[name].description,
        }
        for name in (keys or known)
    ]
    return session.emit(Report([Table(COLUMNS, rows)]))


def shown(value: Any) -> str | None:
    """As it would be written in the environment; a secret only as being there."""
    from pydantic import SecretStr

    if isinstance(value, SecretStr):
        return HIDDEN if value.get_secret_value() else None
    if isinstance(value, dict):
        pairs = (f"{key}={HIDDEN if _SECRET.search(key) else each}" for key, each in value.items())
        return ", ".join(pairs) or None
    if isinstance(value, tuple):
        return ",".join(value) or None
    return None if value is None or value == "" else str(value)
