"""The command line of one broker, see ``broker/__main__.py``."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from broker.adopt.names import SETTINGS as DATA_DIRECTORY_SETTINGS
from broker.config.broker_config import parse_properties
from broker.config.definition import ConfigError
from broker.log_limit import LOG_LIMIT
from broker.server.run import run
from broker.server.start_error import StartError


def serve(arguments: Sequence[str]) -> int:
    """Serve until told to stop; returns the exit code."""
    options = _parse(arguments)
    logging.basicConfig(
        level=options.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    for handler in logging.getLogger().handlers:
        handler.addFilter(LOG_LIMIT)
    try:
        settings = settings_of(options)
        return run(Path(options.data), settings)
    except (ConfigError, StartError, OSError) as error:
        sys.stderr.write(f"odradek broker: {error}\n")
        return 1
    finally:
        LOG_LIMIT.tick()


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m broker", description="One Odradek broker.")
    add_setting_options(parser)
    parser.add_argument(
        "--log-level", default="info", choices=("debug", "info", "warning", "error")
    )
    return parser.parse_args(arguments)


def add_setting_options(parser: argparse.ArgumentParser) -> None:
    """What ``settings_of`` reads."""
    parser.add_argument("--data", default="data", metavar="DIR", help="the data directory")
    parser.add_argument("--listen", metavar="HOST:PORT", help="address for clients")
    parser.add_argument("--advertised", metavar="HOST:PORT", help="address that clients are told")
    parser.add_argument("--config", metavar="FILE", help="settings, as Java properties")
    parser.add_argument(
        "--property", action="append", default=[], metavar="KEY=VALUE", help="one more setting"
    )


def settings_of(options: argparse.Namespace) -> dict[str, str]:
    """Raises StartError."""
    settings: dict[str, str] = {}
    own = Path(options.data) / DATA_DIRECTORY_SETTINGS
    for path in (own, Path(options.config) if options.config is not None else None):
        if path is not None and (path is not own or path.exists()):
            settings.update(parse_properties(path.read_text(encoding="utf-8")))
    for pair in options.property:
        key, equals, value = pair.partition("=")
        if not equals:
            raise StartError(f"--property {pair}: write it as KEY=VALUE")
        settings[key.strip()] = value
    if options.listen is not None:
        settings["listeners"] = f"PLAINTEXT://{options.listen}"
    settings.setdefault("listeners", "PLAINTEXT://127.0.0.1:9092")
    if options.advertised is not None:
        settings["advertised.listeners"] = f"PLAINTEXT://{options.advertised}"
    settings.setdefault("log.dirs", str(Path(options.data).absolute() / "logs"))
    return settings
