"""Reading of single records, as far as it is written down: large ones, and raw bytes."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final, Literal

from broker.clock import SystemClock
from dashboard import export_files
from dashboard.forms.messages import cluster
from dashboard.scan.requests import FULL_CUT, LIST_CUT, RecordRequest, View
from dashboard.scan_pool import Scan, pool
from dashboard.services import audit
from dashboard.services.audit import Actor

BIG_BYTES: Final = 256 * 1024
"""Reading a record of this size as a whole is written down."""
RAW_ROOM_BYTES: Final = 256 * 1024 * 1024
MAX_REMEMBERED: Final = 1_000
FRESH_S: Final = 600

_remembered: OrderedDict[tuple[str, str, str], None] = OrderedDict()
_lock = threading.Lock()


def record_once(actor: Actor, action: str, target: str, **details: object) -> None:
    """Downloads come in ranges: one entry a person and thing, until a thousand others have come."""
    key = (actor.name, action, target)
    with _lock:
        is_new = key not in _remembered
        _remembered[key] = None
        _remembered.move_to_end(key)
        while len(_remembered) > MAX_REMEMBERED:
            _remembered.popitem(last=False)
    if is_new:
        audit.record(actor, action, target, after=details)


def read_record(
    *, actor: Actor, topic: str, partition: int, offset: int, view: View, is_whole: bool
) -> Scan:
    """Waits for it. Raises scan_pool.Busy."""
    assert actor.user is not None
    cut = FULL_CUT if is_whole else 4 * LIST_CUT
    request = RecordRequest(cluster(), topic, partition, offset, view, cut)
    scan = pool.ask(request, actor.user.pk)
    if is_whole and scan.rows:
        row = scan.rows[0]
        size = row["key"]["size"] + row["value"]["size"]
        if size >= BIG_BYTES:
            record_once(actor, "record.read", f"{topic}/{partition}/{offset}", size_bytes=size)
    return scan


def raw_file(
    *, actor: Actor, topic: str, partition: int, offset: int, part: Literal["key", "value"]
) -> Path | Scan:
    """A file with the raw bytes, or the scan that found none. Raises scan_pool.Busy.

    Made for the first range of a download and used for those that follow.
    """
    assert actor.user is not None
    place = f"{topic}/{partition}/{offset}"
    digest = hashlib.sha256(f"{place}/{part}/{actor.user.pk}".encode()).hexdigest()[:24]
    path = export_files.directory() / f"raw-{digest}"
    if not _is_fresh(path):
        export_files.sweep(RAW_ROOM_BYTES)
        partial = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
        request = RecordRequest(
            cluster(), topic, partition, offset, save_part=part, save_path=str(partial)
        )
        try:
            scan = pool.ask(request, actor.user.pk)
            if scan.state != "done" or scan.result.get("saved_bytes") is None:
                return scan
            partial.rename(path)
        finally:
            partial.unlink(missing_ok=True)
    record_once(actor, "record.download", place, part=part, size_bytes=path.stat().st_size)
    return path


def _is_fresh(path: Path) -> bool:
    """The log does not change, but a topic may be made anew under the same name."""
    try:
        written_ms = path.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return False
    return SystemClock().wall_ms() - written_ms < FRESH_S * 1000
