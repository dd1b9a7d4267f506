"""How figures, times and states are written on every page."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

from django import template
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from broker.clock import SystemClock
from dashboard import times
from dashboard.durations import in_two_units
from dashboard.lag_status import LagStatus

register = template.Library()
DASH = "\u2013"
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_COUNT_UNITS = ("", "k", "M", "G", "T")
STATUS_WORDS: Final[dict[str | None, str]] = {
    LagStatus.OK: "ok",
    LagStatus.WARN: "falling behind",
    LagStatus.REWIND: "went back",
    LagStatus.STALL: "stalled",
    LagStatus.STOP: "stopped",
}
STATUS_CLASSES: Final[dict[str | None, str]] = {
    LagStatus.OK: "good",
    LagStatus.WARN: "warn",
    LagStatus.REWIND: "warn",
    LagStatus.STALL: "bad",
    LagStatus.STOP: "bad",
}


@register.filter
def size(count: int | float | None) -> str:
    """Bytes with three digits: ``1.42 MiB``. None is what the cluster did not tell."""
    if count is None:
        return DASH
    value, unit = float(count), 0
    while abs(value) >= 1023.995 and unit < len(_BYTE_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    if unit == 0:
        return f"{value:.0f} B"
    digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{digits}f} {_BYTE_UNITS[unit]}"


@register.filter
def number(count: int | None) -> str:
    """Every digit, in groups of three parted by narrow spaces: counts and offsets."""
    return DASH if count is None else f"{count:,}".replace(",", "\u202f")


@register.filter
def rate(count: float | None) -> str:
    """Per second, with three digits."""
    if count is None:
        return DASH
    value, unit = float(count), 0
    while abs(value) >= 999.5 and unit < len(_COUNT_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    digits = 0 if value == 0 or abs(value) >= 99.5 else 1 if abs(value) >= 9.95 else 2
    return f"{value:.{digits}f}{_COUNT_UNITS[unit]}/s"


@register.filter
def size_rate(count: float | None) -> str:
    return DASH if count is None else f"{size(count)}/s"


@register.filter
def duration(milliseconds: int | float | None) -> str:
    """The two largest units: ``3 h 12 min``."""
    if milliseconds is None:
        return DASH
    seconds = abs(milliseconds) / 1000
    if seconds < 1:
        return f"{abs(milliseconds):.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    return in_two_units(int(seconds))


@register.filter
def moment(milliseconds: int | None) -> SafeString | str:
    """A time in the chosen zone, absolute, its age on hover; milliseconds since 1970."""
    if milliseconds is None or milliseconds < 0:
        return DASH
    try:
        utc = dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)
    local = timezone.localtime(utc)
    return format_html(
        '<time datetime="{}" title="{} ago, {} ms">{}</time>',
        utc.isoformat(timespec="milliseconds"),
        duration(SystemClock().wall_ms() - milliseconds),
        str(milliseconds),
        local.strftime("%Y-%m-%d %H:%M:%S.") + f"{milliseconds % 1000:03d}",
    )


@register.filter
def picker_value(milliseconds: Any) -> str:
    """What a field of the type datetime-local shows, in the chosen zone; empty for no time."""
    return times.picker_value(milliseconds if isinstance(milliseconds, int) else None)


@register.filter
def day_time(at: dt.datetime | None) -> SafeString | str:
    """A stored time in the chosen zone, to the second."""
    if at is None:
        return DASH
    return format_html(
        '<time datetime="{}">{}</time>',
        at.isoformat(timespec="seconds"),
        timezone.localtime(at).strftime("%Y-%m-%d %H:%M:%S"),
    )


@register.filter
def age(milliseconds: int | None) -> str:
    """How long ago: ``12 s``."""
    return DASH if milliseconds is None else duration(SystemClock().wall_ms() - milliseconds)


@register.filter
def lag_word(status: str | None) -> str:
    """How a group is doing, from ``LagStatus``."""
    return STATUS_WORDS.get(status, "not known")


@register.filter
def lag_class(status: str | None) -> str:
    """The colour of that word's badge."""
    return STATUS_CLASSES.get(status, "")


@register.simple_tag(takes_context=True)
def query(context: dict[str, Any], **changes: Any) -> str:
    """The query of this page with some parameters changed; None removes one."""
    parameters = context["request"].GET.copy()
    for name, value in changes.items():
        if value is None or value == "":
            parameters.pop(name, None)
        else:
            parameters[name] = str(value)
    encoded = parameters.urlencode()
    return f"?{encoded}" if encoded else "?"


@register.simple_tag(takes_context=True)
def query_with(context: dict[str, Any], name: str, *parts: Any) -> str:
    """As ``query``, for a parameter whose name or value is put together in the template; page 1."""
    return query(context, **{name: "".join(map(str, parts)), "page": None})


@register.simple_tag
def percent(share: float) -> str:
    """A difference from an even share: ``+25 %``."""
    return f"{share * 100:+.0f} %".replace("-", "\u2212")


_ASKERS: Final[dict[str, str]] = {
    "schedule": "schedule",
    "person": "somebody who is gone",
    "api": "the API",
    "broker": "nobody: the broker did it by itself",
}
_RUN_BADGES: Final[dict[str, str]] = {
    "ok": "good", "failed": "bad", "lost": "bad", "skipped": "warn", "cancelled": "warn",
    "incomplete": "warn",
}  # fmt: skip


@register.filter
def run_badge(run: Any) -> str:
    """The class of a run's state."""
    return _RUN_BADGES.get(run.state, "")


@register.filter
def run_asker(run: Any) -> str:
    """Who or what asked for it."""
    if run.trigger in ("person", "api") and run.requested_by is not None:
        return f"{run.requested_by.username}{', by the API' if run.trigger == 'api' else ''}"
    return _ASKERS.get(run.trigger, str(run.trigger))


@register.filter
def run_outcome(run: Any) -> str:
    """The result on one line."""
    result = run.result
    if run.progress_text and not run.is_finished:
        return str(run.progress_text)
    if not isinstance(result, dict):
        return "nothing to do" if run.state == "ok" else ""
    if "uncleanable" in result and "topics" in result:
        topics = result["topics"].values()
        before, after = (
            sum(each[key] for each in topics) for key in ("bytes_before", "bytes_after")
        )
        stuck = len(result["uncleanable"])
        told = f"{size(before)} became {size(after)} in {_counted(len(topics), 'topic')}"
        return f"{told}, {_counted(stuck, 'partition')} stuck" if stuck else told
    if "segments" in result and "bytes" in result:
        segments = _counted(result["segments"], "segment")
        topics = result.get("topics", {})
        told = f"{segments}, {size(result['bytes'])} of {_counted(len(topics), 'topic')}"
        reasons = {reason for topic in topics.values() for reason in topic.get("reasons", {})}
        return f"{told}: {', '.join(sorted(map(retention_reason, reasons)))}" if reasons else told
    if "row_count" in result:
        read = (result.get("read") or {}).get("records")
        source = "" if read is None else f" of {_counted(read, 'record')}"
        return _counted(result["row_count"], "row") + source
    plain = [_figure(name, value) for name, value in result.items() if isinstance(value, int | str)]
    return ", ".join(plain)[:200]


def _counted(count: int, noun: str) -> str:
    return f"{number(count)} {noun}{'' if count == 1 else 's'}"


def _figure(name: str, value: int | str) -> str:
    """A figure of a job's result by its name, of which we know only how names are made."""
    label = name.removesuffix("_bytes").replace("_", " ")
    if isinstance(value, str | bool):
        return f"{label}: {value}"
    return f"{label}: {size(value) if name.endswith('bytes') else number(value)}"


@register.filter
def with_code(text: str) -> SafeString:
    """What stands between backquotes, as what one types."""
    parts = enumerate(str(text).split("`"))
    return format_html_join(
        "", "{}", ((format_html("<code>{}</code>", one) if n % 2 else one,) for n, one in parts)
    )


@register.filter
def retention_reason(reason: str) -> str:
    """Why retention lets something go."""
    return {
        "time": "too old",
        "size": "too much",
        "start_offset": "below the log's start",
    }.get(reason, reason)
