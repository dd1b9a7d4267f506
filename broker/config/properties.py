"""Java's ``.properties`` format, in which Kafka's settings files are written."""

from __future__ import annotations

import re

#: The first blank, = or : that no backslash protects; blanks around one = or : belong to it.
_KEY_END = re.compile(r"(?<!\\)((?:\\\\)*)(?:[ \t\f]*[=:][ \t\f]*|[ \t\f]+)")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """The settings of ``text``; a name that comes twice has its last value."""
    settings: dict[str, str] = {}
    for line in _logical_lines(text):
        match = _KEY_END.search(line)
        if match is None:
            settings[_unescape(line)] = ""
        else:
            key = line[: match.start()] + match.group(1)
            settings[_unescape(key)] = _unescape(line[match.end() :])
    return settings


def _logical_lines(text: str) -> list[str]:
    """Lines without comments and blanks in front; one that ends in a lone backslash goes on."""
    lines: list[str] = []
    pending: str | None = None
    for raw in re.split(r"\r\n|\n|\r", text):
        line = raw.lstrip(" \t\f")
        if pending is None and (not line or line[0] in "#!"):
            continue
        line = (pending or "") + line
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending = line[:-1]
        else:
            pending = None
            lines.append(line)
    if pending:
        lines.append(pending)
    return lines


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        code = match.group(1)
        if len(code) == 5:
            return chr(int(code[1:], 16))
        return _ESCAPED.get(code, code)

    return _ESCAPE.sub(replace, text)
