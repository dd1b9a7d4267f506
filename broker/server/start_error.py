"""Why a broker does not start."""

from __future__ import annotations


class StartError(Exception):
    """The message says what is wrong and what to do, in one line."""


class StartInterrupted(Exception):
    """Told to stop before anything was served."""
