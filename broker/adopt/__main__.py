"""``python -m broker.adopt``: take over a stopped Apache Kafka's log directories.

``odradek adopt`` runs it as a child with ``--json``: one JSON object a line on standard output,
``{"progress": ...}`` while it works, at the end ``{"report": ..., "text": ...}`` or ``{"refused": ...}``.
By hand it speaks to people. Exit code 0 when the data directory is ready, 1 when it was refused or
failed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final, TextIO

from broker.adopt.adoption import Adopted, Options, adopt
from broker.adopt.disk import Disk
from broker.adopt.plan import Mode
from broker.adopt.refusal import Refusal
from broker.adopt.store_writer import StoreFailed
from broker.adopt.words import report_text, size_text
from broker.clock import Clock, SystemClock

_PROGRESS_INTERVAL_MS: Final = 1000
_GOES_ON: Final = "Called again with the same directories it goes on."


class _Voice:
    """Says how far it is and how it ended, for a program or for a person."""

    def __init__(self, options: Options, clock: Clock, out: TextIO, *, is_json: bool) -> None:
        self._options = options
        self._clock = clock
        self._out = out
        self._is_json = is_json
        self._said_ms = clock.monotonic_ms()

    def on_progress(self, done: int, total: int, bytes_done: int, bytes_total: int) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._said_ms < _PROGRESS_INTERVAL_MS:
            return
        self._said_ms = now_ms
        if self._is_json:
            progress = {"partitions": done, "of_partitions": total}
            progress |= {"bytes": bytes_done, "of_bytes": bytes_total}
            self._line({"progress": progress})
        else:
            copied = f", {size_text(bytes_done)} of {size_text(bytes_total)} copied"
            sys.stderr.write(f"{done} of {total} partitions{copied if bytes_total else ''}\n")

    def adopted(self, adopted: Adopted) -> int:
        text = report_text(adopted.report, str(self._options.data), is_new=adopted.is_new)
        if self._is_json:
            report = asdict(adopted.report) | {"is_new": adopted.is_new}
            self._line({"report": report, "text": text})
        else:
            self._out.write(text)
        return 0

    def refused(self, message: str, hint: str | None) -> int:
        if self._is_json:
            self._line({"refused": {"message": message, "hint": hint}})
        else:
            sys.stderr.write(f"odradek adopt: {message}\n" + (f"  {hint}\n" if hint else ""))
        return 1

    def _line(self, value: Mapping[str, object]) -> None:
        self._out.write(json.dumps(value) + "\n")
        self._out.flush()


def main(arguments: list[str] | None = None) -> int:
    parsed = _parser().parse_args(arguments)
    mode = Mode.MOVE if parsed.move else Mode.COPY if parsed.copy else Mode.LINK
    options = Options(parsed.sources, parsed.data, parsed.config, mode, parsed.salvage)
    voice = _Voice(options, SystemClock(), sys.stdout, is_json=parsed.json)
    try:
        return voice.adopted(adopt(options, Disk(), voice.on_progress))
    except Refusal as refusal:
        return voice.refused(refusal.message, refusal.hint)
    except PermissionError as error:
        return voice.refused(
            str(error), "Run it as the user that Kafka ran as; then run Odradek as that user, too."
        )
    except (OSError, StoreFailed) as error:
        return voice.refused(str(error), _GOES_ON)
    except KeyboardInterrupt:
        voice.refused("interrupted", _GOES_ON)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m broker.adopt",
        description="Take over the log directories of a stopped Apache Kafka.",
    )
    parser.add_argument("sources", nargs="+", type=Path, metavar="KAFKA_LOG_DIR")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument("--config", type=Path, metavar="SERVER_PROPERTIES")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--move", action="store_true", help="rename the partitions' directories")
    how.add_argument("--copy", action="store_true", help="copy everything, link nothing")
    parser.add_argument(
        "--salvage", action="store_true", help="take topics too that no metadata knows"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    return parser


if __name__ == "__main__":
    sys.exit(main())
