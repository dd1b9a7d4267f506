"""Who may keep a WebSocket open: asked when it opens, at each change, and every two seconds.

A socket's own copy of session and user is never believed: signing out, a changed password or role,
a withdrawn topic end it within seconds, with a code that the page can put in words.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine, Iterable
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final, Protocol

from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.db import DatabaseError

from dashboard import tasks
from dashboard.models import User
from dashboard.permissions import Permission, may

logger = logging.getLogger(__name__)

CHECK_PAUSE_S: Final = 2.0
MAX_SOCKETS: Final = 500
MAX_SOCKETS_OF_USER: Final = 250

BAD_MESSAGE: Final = 4400
SIGNED_OUT: Final = 4401
NOT_ALLOWED: Final = 4403
TOO_MANY: Final = 4429


class GuardedSocket(Protocol):
    session_key: str
    user_id: int
    topics: list[str]

    def refuse(self, code: int, reason: str) -> Coroutine[Any, Any, None]: ...


class TooManySockets(Exception):
    """In words for the person."""


class SocketGuard:
    """The open sockets of this process."""

    def __init__(self) -> None:
        self._sockets: dict[GuardedSocket, None] = {}
        self._watch: asyncio.Task[None] | None = None

    def enter(self, socket: GuardedSocket) -> None:
        """Raises TooManySockets."""
        if len(self._sockets) >= MAX_SOCKETS:
            raise TooManySockets(f"{MAX_SOCKETS} live tails are open, there is no room for another")
        if Counter(one.user_id for one in self._sockets)[socket.user_id] >= MAX_SOCKETS_OF_USER:
            raise TooManySockets(f"you have {MAX_SOCKETS_OF_USER} live tails open, close one")
        self._sockets[socket] = None
        if self._watch is None:
            self._watch = tasks.keep(self._keep_checking, "permissions of sockets")

    async def leave(self, socket: GuardedSocket) -> None:
        self._sockets.pop(socket, None)
        if not self._sockets:
            watch, self._watch = self._watch, None
            await tasks.end(watch)

    async def _keep_checking(self) -> None:
        while True:
            await asyncio.sleep(CHECK_PAUSE_S)
            try:
                await self.check()
            except DatabaseError as error:
                # Nobody is thrown out for that; whoever has to go goes when it is back.
                logger.warning("who may watch could not be asked: %s", error)

    async def check(self) -> None:
        sockets = list(self._sockets)
        users = await users_of({socket.session_key for socket in sockets})
        for socket in sockets:
            if socket not in self._sockets:
                continue
            if (trouble := refusal(users.get(socket.session_key), socket)) is not None:
                # A task of its own: the last socket that leaves ends this one.
                tasks.start(socket.refuse(*trouble), "end of a socket")


def refusal(user: User | None, socket: GuardedSocket) -> tuple[int, str] | None:
    """Why this socket has to close now."""
    if user is None or user.pk != socket.user_id:
        return SIGNED_OUT, "you are signed out"
    if not may(user, Permission.READ_RECORDS):
        return NOT_ALLOWED, "your role does not allow to read records"
    for topic in socket.topics:
        if not may(user, Permission.READ_RECORDS, topic):
            return NOT_ALLOWED, f"your role does not allow to read records of {topic}"
    return None


async def users_of(session_keys: Iterable[str]) -> dict[str, User]:
    """Who is signed in by these sessions now; a session that ended, or whose password was
    changed, is nobody's."""
    found: dict[str, User] = await database_sync_to_async(_users_of)(session_keys)
    return found


def _users_of(session_keys: Iterable[str]) -> dict[str, User]:
    store = import_module(settings.SESSION_ENGINE).SessionStore
    found = {}
    for key in session_keys:
        user = get_user(SimpleNamespace(session=store(key)))  # type: ignore[arg-type]
        if isinstance(user, User) and user.is_active and not user.must_change_password:
            found[key] = user
    return found
