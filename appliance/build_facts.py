"""What is known of how this Odradek was built: from which commit, and whether its hot path is machine code."""

from __future__ import annotations

import json
import re
from pathlib import Path

from broker import compiled

_APPLIANCE = Path(__file__).resolve().parent
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHOWN = 12


def is_compiled() -> bool:
    """Whether a broker started now would run the compiled hot path."""
    return compiled.why_not() is None


def commit() -> str | None:
    """A wheel was told its commit; in a clone it is read from git's files, without git: a start of git
    costs more than all of ``odradek version``."""
    try:
        told = json.loads((_APPLIANCE / "build_facts.json").read_text())["commit"]
        return None if told is None else str(told)
    except (OSError, ValueError, KeyError):
        return _commit_of(_APPLIANCE.parent / ".git")


def _commit_of(git: Path) -> str | None:
    try:
        if git.is_file():  # a worktree: one line that says where
            git = git.parent / git.read_text().removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return _shown(head)
        name = head.removeprefix("ref: ")
        shared = git / "commondir"
        common = git / shared.read_text().strip() if shared.exists() else git
        loose = common / name
        if loose.exists():
            return _shown(loose.read_text().strip())
        for line in (common / "packed-refs").read_text().splitlines():
            if line.endswith(f" {name}"):
                return _shown(line.split(" ")[0])
    except (OSError, UnicodeDecodeError):
        pass
    return None


def _shown(found: str) -> str | None:
    return found[:_SHOWN] if _COMMIT.fullmatch(found) else None
