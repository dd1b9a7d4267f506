"""Passwords that Odradek makes: shown once, then stored only as a hash."""

from __future__ import annotations

import secrets

_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
"""Without those that are taken for one another."""
_GROUPS, _GROUP_LENGTH = 4, 5


def make_password() -> str:
    """99 bits in groups that can be read out: ``h3kqz-7vm2p-xw9ct-4rfnb``."""
    return "-".join(
        "".join(secrets.choice(_LETTERS) for _ in range(_GROUP_LENGTH)) for _ in range(_GROUPS)
    )
