"""The key that signs sessions: given by configuration, or made once and kept beside the data."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

FILE_NAME = "secret_key"


def secret_key(configured: str, data_directory: Path) -> str:
    """The key to use. Made keys are written whole or not at all, readable by their owner alone."""
    if configured:
        return configured
    path = data_directory / FILE_NAME
    if not path.exists():
        _make(path)
    return path.read_text().strip()


def _make(path: Path) -> None:
    """Two processes may come at once: the first link wins, both read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{FILE_NAME}.{os.getpid()}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, secrets.token_urlsafe(48).encode() + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    try:
        os.link(aside, path)
    except FileExistsError:
        pass
    finally:
        aside.unlink()
