"""The report of an adoption as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from broker.adopt.plan import Report

_NAMED_AT_MOST = 20
_SIZES = ("B", "KB", "MB", "GB", "TB")


def report_text(report: Report, data: str, *, is_new: bool) -> str:
    return "\n".join([*_lines(report, data, is_new=is_new), ""])


def _lines(report: Report, data: str, *, is_new: bool) -> Iterator[str]:
    if not is_new:
        yield f"{data} had been adopted before; nothing was done."
    yield (
        f"Adopted from {', '.join(report.sources)}: cluster {report.cluster_id}, node {report.node_id}, "
        f"{_count(report.topic_count, 'topic')}, {_count(report.partition_count, 'partition')}, "
        f"{size_text(report.total_bytes)}."
    )
    if not report.was_clean:
        yield "Kafka was not stopped cleanly: the first start checks the ends of the logs."
    if report.held:
        yield (
            f"Retention not found, nothing is deleted until you set it: {_named(report.held)}. "
            "With --config server.properties the topics without settings of their own keep Kafka's."
        )
    if report.unlisted:
        yield (
            f"Not in the metadata, taken from the directories alone, never deleted: "
            f"{_named(report.unlisted)}."
        )
    for name, why in report.leftovers:
        yield f"Left behind: {name} ({why})."
    for kind, count in report.not_taken.items():
        yield f"Not taken over: {_count(count, kind)}."
    if report.settings_left:
        yield f"Settings not taken over: {_named(report.settings_left)}."
    for note in report.notes:
        yield f"Note: {note}."
    yield f"Start it with: odradek serve --data {data}"


def size_text(count: int) -> str:
    size, unit = float(count), _SIZES[0]
    for unit in _SIZES:
        if size < 1000 or unit == _SIZES[-1]:
            break
        size /= 1000
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def _count(count: int, noun: str) -> str:
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun[:-1]}ies" if noun.endswith("y") else f"{count} {noun}s"


def _named(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_AT_MOST
    return ", ".join(names[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")
