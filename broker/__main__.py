"""``python -m broker``: one broker process. Started by ``odradek serve`` or by hand.

Settings come from ``--config FILE`` (Java properties), then ``--property key=value``, then the other
options, later ones being stronger. Prints ``ready HOST:PORT`` on standard output once clients are
served; ends cleanly on SIGTERM or SIGINT, or when the parent that is named by ODRADEK_PARENT_FD (the
read end of a pipe) has gone.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from broker.config.broker_config import parse_properties
from broker.config.definition import ConfigError
from broker.server.run import run
from broker.server.start_error import StartError


def main() -> int:
    options = _parse(sys.argv[1:])
    logging.basicConfig(
        level=options.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    try:
        settings = _settings(options)
        return run(Path(options.data), settings)
    except (ConfigError, StartError, OSError) as error:
        sys.stderr.write(f"odradek broker: {error}\n")
        return 1


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m broker", description="One Odradek broker.")
    parser.add_argument("--data", default="data", metavar="DIR", help="the data directory")
    parser.add_argument("--listen", metavar="HOST:PORT", help="address for clients")
    parser.add_argument("--advertised", metavar="HOST:PORT", help="address that clients are told")
    parser.add_argument("--config", metavar="FILE", help="settings, as Java properties")
    parser.add_argument(
        "--property", action="append", default=[], metavar="KEY=VALUE", help="one more setting"
    )
    parser.add_argument(
        "--log-level", default="info", choices=("debug", "info", "warning", "error")
    )
    return parser.parse_args(arguments)


def _settings(options: argparse.Namespace) -> dict[str, str]:
    settings: dict[str, str] = {}
    if options.config is not None:
        settings.update(parse_properties(Path(options.config).read_text(encoding="utf-8")))
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


if __name__ == "__main__":
    sys.exit(main())
